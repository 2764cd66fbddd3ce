package rank

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rankpool/mpicache/transport"
)

// A gatherTransport tells the ranks each other's notes before the node begins, in rounds: the first message of each rank is its note of
// the first round, and so on, and all later ones are the node's. They wait for the node's Start, since other ranks may be ahead of this one.
type gatherTransport struct {
	transport.Transport
	came chan struct{} // holds a token when a message has come

	mu    sync.Mutex // protects the rest
	early [][][]byte // by rank: what came and is not taken, in order
	order []int      // whose messages these are, over all ranks
	node  func(from int, msg []byte)
	begun bool // the node has had what came early
}

// newGather starts t, which must not have been started.
func newGather(t transport.Transport) *gatherTransport {
	g := &gatherTransport{Transport: t, came: make(chan struct{}, 1), early: make([][][]byte, t.Size())}
	t.Start(g.handle)
	return g
}

// gather makes a round: it sends this rank's note, which must not be empty, to all ranks, and returns all notes by rank. All ranks must
// make the same rounds. It waits for all, until ctx ends, and says so in log at every tick: a rank that dies is the launcher's to notice,
// which ends the others.
func (g *gatherTransport) gather(ctx context.Context, note []byte, tick <-chan time.Time, log *slog.Logger) ([][]byte, error) {
	for r := range g.Size() {
		g.Post(r, note)
	}
	for {
		notes, there := g.take()
		if notes != nil {
			return notes, nil
		}
		select {
		case <-g.came:
		case <-tick:
			log.Warn("waiting for the other ranks to begin", "there", there, "of", g.Size())
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the other ranks: %w", context.Cause(ctx))
		}
	}
}

// take returns the next note of each rank, nil when not all are there, and how many are.
func (g *gatherTransport) take() (notes [][]byte, there int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, of := range g.early {
		if len(of) > 0 {
			there++
		}
	}
	if there < len(g.early) {
		return nil, there
	}
	for r := range g.early {
		notes = append(notes, g.early[r][0])
		g.early[r] = g.early[r][1:]
		g.order = slices.Delete(g.order, slices.Index(g.order, r), slices.Index(g.order, r)+1)
	}
	return notes, there
}

// Start implements Transport. A message of this rank to itself has the transport's goroutine deliver what waits.
func (g *gatherTransport) Start(handle func(from int, msg []byte)) {
	g.mu.Lock()
	g.node = handle
	g.mu.Unlock()
	g.Post(g.Rank(), nil)
}

func (g *gatherTransport) handle(from int, msg []byte) {
	g.mu.Lock()
	if g.begun {
		g.mu.Unlock()
		g.node(from, msg)
		return
	}
	if g.node == nil || from != g.Rank() { // else it is from Start, before the node has sent anything
		g.early[from] = append(g.early[from], bytes.Clone(msg))
		g.order = append(g.order, from)
		g.mu.Unlock()
		select {
		case g.came <- struct{}{}:
		default:
		}
		return
	}
	g.begun = true
	order := g.order
	g.order = nil
	g.mu.Unlock()
	for _, r := range order {
		g.node(r, g.early[r][0])
		g.early[r] = g.early[r][1:]
	}
}
