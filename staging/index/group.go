package index

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
)

// A Group is the ranks that index a data set together. Rank 0 sends requests (Scan, Checksums), the
// others Serve until rank 0 dismisses them. A nil Group is this process alone.
//
// The launcher notices a rank that dies: mpirun and srun then end the other ranks.
type Group struct {
	mux   *ranks.Mux
	calls *ranks.Calls // of rank 0
}

// The channels.
const (
	channelCalls byte = iota
	channelDismiss
)

// The kinds of requests, their first byte.
const (
	askList     = 'l' // the path of a folder
	askManifest = 'm' // an encoded manifest, whose samples rank 0 then asks for
	askSums     = 's' // a sumBatch
	askWork     = 'w' // see Group.Work
)

// NewGroup makes the group of t's ranks and starts delivery (Transport.Start). It returns nil, this
// process alone, if there is one rank.
func NewGroup(t transport.Transport) *Group {
	if t.Size() == 1 {
		return nil
	}
	g := &Group{mux: ranks.NewMux(t)}
	if g.Rank() == 0 {
		g.calls = ranks.NewCalls(g.mux, channelCalls, nil)
	}
	return g
}

// Rank returns this rank's number, 0 for a process alone.
func (g *Group) Rank() int {
	if g == nil {
		return 0
	}
	return g.mux.Rank()
}

// Size returns the number of ranks, 1 for a process alone.
func (g *Group) Size() int {
	if g == nil {
		return 1
	}
	return g.mux.Size()
}

// ask sends a request to a rank and returns its reply.
func (g *Group) ask(ctx context.Context, to int, kind byte, data []byte) ([]byte, error) {
	return g.calls.Call(ctx, to, append([]byte{kind}, data...))
}

// Dismiss ends the other ranks' Serve. Only rank 0 calls it, once.
func (g *Group) Dismiss() {
	if g != nil {
		g.mux.SendOthers(channelDismiss, nil)
	}
}

// Serve answers rank 0's requests until rank 0 dismisses this rank. After ctx's end every answer is
// an error.
//
// For the requests of rank 0's Work it calls work (nil: there are none) from many goroutines, with
// a context that ends when the rank is dismissed. It returns when all calls have returned.
func (g *Group) Serve(ctx context.Context,
	work func(ctx context.Context, request []byte) ([]byte, error),
) {
	s := &server{lister: &systemLister{make(chan struct{}, concurrency)}, work: work}
	defer s.setSummer(nil)
	var working sync.WaitGroup
	defer working.Wait()
	dismissed := context.WithoutCancel(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop() // ends work whose caller has gone
	ranks.NewCalls(g.mux, channelCalls, func(_ int, request []byte, reply func([]byte, error)) {
		request = bytes.Clone(request)
		working.Go(func() { reply(s.answer(ctx, request[0], request[1:])) })
	})
	_, _ = g.mux.Receive(dismissed, channelDismiss) // a context that does not end
}

// Work sends request to rank's Serve and returns the answer of its work. Only rank 0 calls it, from
// any number of goroutines. An error of another rank names that rank.
func (g *Group) Work(ctx context.Context, rank int, request []byte) ([]byte, error) {
	return g.ask(ctx, rank, askWork, request)
}

// A server answers rank 0's requests.
type server struct {
	lister *systemLister
	work   func(context.Context, []byte) ([]byte, error) // nil: none

	mu   sync.Mutex
	sums *summer // nil: rank 0 has sent no manifest
}

func (s *server) answer(ctx context.Context, kind byte, data []byte) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	switch kind {
	case askList:
		return s.answerList(ctx, data)
	case askManifest:
		return s.setManifest(data)
	case askSums:
		return s.answerSums(ctx, data)
	case askWork:
		if s.work != nil {
			return s.work(ctx, data)
		}
	}
	return nil, fmt.Errorf("unknown request kind %q", kind)
}

// listers returns the listers of the other ranks, several per rank, so that each rank always has a
// next folder.
func (g *Group) listers() []lister {
	var all []lister
	for to := 1; to < g.Size(); to++ {
		for range 2 * concurrency {
			all = append(all, &remoteLister{g, to})
		}
	}
	return all
}

// A remoteLister lists folders on another rank.
type remoteLister struct {
	group *Group
	rank  int
}

func (l *remoteLister) list(ctx context.Context, path string) (*listing, error) {
	reply, err := l.group.ask(ctx, l.rank, askList, []byte(path))
	if err != nil {
		return nil, err
	}
	var found listing
	return &found, ranks.Decode(reply, &found)
}

// answerList is the other side of remoteLister.list.
func (s *server) answerList(ctx context.Context, data []byte) ([]byte, error) {
	l, err := s.lister.list(ctx, string(data))
	if err != nil {
		return nil, err
	}
	return ranks.Encode(l), nil
}
