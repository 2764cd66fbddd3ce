package mpicache

import (
	"context"
	"sync"
	"time"

	"rankpool/mpicache/message"
)

// If the whole job ends, a node that is asked to end during training is a lame duck for a while:
// training may write a last checkpoint, for which it needs its rank and rank 0. If another rank has
// died, the node ends at once, since all ranks are restarted. To find out which it is, the node
// asks its peers: dead ones do not answer.

// livesWithin is how long a peer may take to send a sign of life, on a machine that is busy writing
// checkpoints.
const livesWithin = time.Second

// lifeSigns records which peers have sent a sign of life.
type lifeSigns struct {
	mu    sync.Mutex
	heard map[int]bool  // those that are alive, or have ended by themselves
	all   chan struct{} // closed when the last of them is heard
}

// LameDuck keeps serving until the last trainer here has left, and reports whether it has: then
// Close ends the node properly. It returns false, and Abandon must follow, if a peer is silent
// while trainers are connected, or when ctx ends.
func (n *Node) LameDuck(ctx context.Context) bool {
	if !n.PeersLive(ctx) && n.Training() {
		return false
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for n.Training() {
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
		}
	}
	// otherwise ranks that are asked to end later would think it dead
	message.ToOthers(n.cfg.Transport, []byte{message.Leaves})
	return true
}

// SaveImportance writes rank 0's current state files, unless they belong to a checkpoint. It
// returns when they are written, or ctx ends.
func (n *Node) SaveImportance(ctx context.Context) {
	for _, s := range n.rank.All() {
		saving := s.Save()
		if saving == nil {
			continue
		}
		select {
		case <-saving:
		case <-ctx.Done():
		}
	}
}

// PeersLive asks all peers for a sign of life, unless each has sent one, and reports whether all
// answer in time.
func (n *Node) PeersLive(ctx context.Context) bool {
	l := &n.life
	l.mu.Lock()
	missing := n.cfg.Transport.Size() - 1 - len(l.heard)
	l.mu.Unlock()
	if missing == 0 {
		return true
	}
	message.ToOthers(n.cfg.Transport, []byte{message.Lives})
	select {
	case <-l.all:
		return true
	case <-time.After(livesWithin):
	case <-ctx.Done():
	}
	return false
}

// onLife handles the messages of this file, and reports whether kind is one of them.
func (n *Node) onLife(from int, kind byte) bool {
	switch kind {
	case message.Lives:
		n.cfg.Transport.Post(from, []byte{message.Lived})
	case message.Lived, message.Leaves:
		n.cfg.Pulse.heard(from, kind == message.Leaves)
		n.noteLife(from)
	default:
		return false
	}
	return true
}

func (n *Node) noteLife(from int) {
	l := &n.life
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard[from] {
		return
	}
	l.heard[from] = true
	if len(l.heard) == n.cfg.Transport.Size()-1 {
		close(l.all)
	}
}
