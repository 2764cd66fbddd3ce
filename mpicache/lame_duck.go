package mpicache

import (
	"context"
	"fmt"
	"time"
)

// If the whole job ends, a node that is asked to end during training is a lame duck for a while:
// training may write a last checkpoint, for which it needs its rank and rank 0. If another rank has
// died, the node ends at once, since all ranks are restarted. To find out which it is, the node
// asks its peers: dead ones do not answer.

// livesWithin is how long a peer may take to send a sign of life, on a machine that is busy writing
// checkpoints.
const livesWithin = time.Second

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
	n.cfg.Watch.Leave() // otherwise ranks that are asked to end later would think it dead
	return true
}

// PeersLive asks all peers for a sign of life, and reports whether each answers in time.
func (n *Node) PeersLive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, livesWithin)
	defer cancel()
	return n.cfg.Watch.AllLive(ctx)
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

// refusePlans tells the trainers that wait for a plan to retry later, since a rank is lost: they
// should wait, but not forever.
func (n *Node) refusePlans(lost int) {
	why := fmt.Sprintf("rank %d has not answered for %v, and a plan needs what its trainers report",
		lost, n.cfg.Watch.Bound())
	for _, s := range n.rank.All() {
		s.Refuse(why)
	}
}
