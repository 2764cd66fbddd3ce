package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/mpicache"
)

// A gatherTransport tells the ranks each other's numbers before the node begins: the first message from each rank is its number, and all
// later ones are the node's. They wait for the node's Start, since other ranks may be ahead of this one.
type gatherTransport struct {
	mpicache.Transport
	numbers  []int64
	there    atomic.Int64  // how many numbers have come
	gathered chan struct{} // closed when the numbers are complete

	mu   sync.Mutex // protects node; the rest is the transport's goroutine's
	node func(from int, msg []byte)

	known   []bool // by rank: its number has come
	started bool   // the node is to have what comes
	early   []earlyMessage
}

type earlyMessage struct {
	from int
	msg  []byte
}

// gather sends this rank's number to all ranks and returns a transport for the node, and all numbers by rank. The transport t must not
// have been started. It waits for all ranks, until ctx ends, and says so in log at every tick: a rank that dies is the launcher's to
// notice, which ends the others.
func gather(
	ctx context.Context, t mpicache.Transport, number int64, tick <-chan time.Time, log *slog.Logger,
) (mpicache.Transport, []int64, error) {
	ranks := t.Size()
	g := &gatherTransport{Transport: t, numbers: make([]int64, ranks), known: make([]bool, ranks), gathered: make(chan struct{})}
	t.Start(g.handle)
	for r := range ranks {
		t.Post(r, binary.LittleEndian.AppendUint64(nil, uint64(number)))
	}
	for {
		select {
		case <-g.gathered:
			return g, g.numbers, nil
		case <-tick:
			log.Warn("waiting for the other ranks to begin", "there", g.there.Load(), "of", ranks)
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("waiting for the other ranks: %w", context.Cause(ctx))
		}
	}
}

// Start implements Transport. A message of this rank to itself has the transport's goroutine deliver what waits.
func (g *gatherTransport) Start(handle func(from int, msg []byte)) {
	g.mu.Lock()
	g.node = handle
	g.mu.Unlock()
	g.Post(g.Rank(), nil)
}

func (g *gatherTransport) handle(from int, msg []byte) {
	switch {
	case !g.known[from]:
		g.known[from] = true
		g.numbers[from] = int64(binary.LittleEndian.Uint64(msg)) // ranks run the same program
		if g.there.Add(1) == int64(len(g.known)) {
			close(g.gathered)
		}
	case g.started:
		g.node(from, msg)
	case from == g.Rank(): // from Start, before the node has sent anything
		g.mu.Lock() // after Start's
		g.started = true
		g.mu.Unlock()
		for _, e := range g.early {
			g.node(e.from, e.msg)
		}
		g.early = nil
	default:
		g.early = append(g.early, earlyMessage{from, append([]byte(nil), msg...)})
	}
}
