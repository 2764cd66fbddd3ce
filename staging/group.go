package staging

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// A Transport carries messages between the ranks of an index: the part of transport.Transport that
// Group needs, where the methods are documented.
type Transport interface {
	Rank() int
	Size() int
	Start(handle func(from int, msg []byte))
	Post(to int, msg []byte)
}

// A Group is the ranks that index a data set together. Rank 0 sends requests (Scan, Checksums), the
// others Serve until rank 0 dismisses them. A nil Group is this process alone.
//
// The launcher notices a rank that dies: mpirun and srun then end the other ranks.
type Group struct {
	transport Transport

	mu    sync.Mutex
	calls map[uint32]*call // of rank 0, by number
	next  uint32

	requests chan request // of the other ranks
}

// A call is a request of rank 0 that waits for its reply.
type call struct {
	reply []byte // the part received so far
	err   error
	done  chan struct{}
}

type request struct {
	number uint32
	kind   byte
	data   []byte
}

// A message is a call's number (u32), a kind, and data. Data longer than replyBytes are sent in
// several messages.
const (
	// concurrency is the sender's: flags (a byte: 1 sync, 2 known), known time (varint), path.
	askList    = 'l'
	askSums    = 's' // see sumBatch.append
	askWork    = 'w' // see Group.Work
	dismiss    = 'd'
	replyMore  = 'm'
	replyLast  = 'r'
	replyError = 'e' // a byte that is 1 for a vanishedError, and its text

	messageHead = 5
	replyBytes  = 16 << 20 // of the 64 MiB that a transport carries
)

// requestsAhead is how many requests a rank may have waiting; rank 0 sends no more than that at a
// time.
const requestsAhead = 4096

// NewGroup makes the group of t's ranks and starts delivery (Transport.Start). It returns nil, this
// process alone, if there is one rank.
func NewGroup(t Transport) *Group {
	if t.Size() == 1 {
		return nil
	}
	// one more for the dismissal
	g := &Group{transport: t, calls: map[uint32]*call{}, requests: make(chan request, requestsAhead+1)}
	t.Start(g.handle)
	return g
}

// Rank returns this rank's number, 0 for a process alone.
func (g *Group) Rank() int {
	if g == nil {
		return 0
	}
	return g.transport.Rank()
}

// Size returns the number of ranks, 1 for a process alone.
func (g *Group) Size() int {
	if g == nil {
		return 1
	}
	return g.transport.Size()
}

// handle accepts a message; it never blocks, because rank 0 sends no more requests than the channel
// holds.
func (g *Group) handle(from int, msg []byte) {
	if len(msg) < messageHead {
		return
	}
	number, kind, data := binary.LittleEndian.Uint32(msg), msg[4], msg[messageHead:]
	if g.transport.Rank() != 0 {
		g.requests <- request{number, kind, append([]byte(nil), data...)}
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[number]
	if c == nil {
		return // its caller gave up
	}
	switch kind {
	case replyError:
		if c.err = errors.New("an empty error"); len(data) > 0 {
			c.err = fmt.Errorf("%s (rank %d)", data[1:], from)
			if data[0] == 1 {
				c.err = &vanishedError{c.err}
			}
		}
	default:
		c.reply = append(c.reply, data...)
	}
	if kind != replyMore {
		delete(g.calls, number)
		close(c.done)
	}
}

// ask sends a request to rank and returns its reply.
func (g *Group) ask(ctx context.Context, to int, kind byte, data []byte) ([]byte, error) {
	c := &call{done: make(chan struct{})}
	g.mu.Lock()
	g.next++
	number := g.next
	g.calls[number] = c
	g.mu.Unlock()
	g.post(to, number, kind, data)
	select {
	case <-c.done:
		return c.reply, c.err
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.calls, number)
		return nil, context.Cause(ctx)
	}
}

func (g *Group) post(to int, number uint32, kind byte, data []byte) {
	msg := make([]byte, messageHead, messageHead+len(data))
	binary.LittleEndian.PutUint32(msg, number)
	msg[4] = kind
	g.transport.Post(to, append(msg, data...))
}

// Dismiss ends the other ranks' Serve. Only rank 0 calls it, once.
func (g *Group) Dismiss() {
	for to := 1; to < g.Size(); to++ {
		g.post(to, 0, dismiss, nil)
	}
}

// Serve answers rank 0's requests, with concurrency requests to the storage at a time (0:
// DefaultScanConcurrency), until rank 0 dismisses this rank. After ctx's end every answer is an
// error.
func (g *Group) Serve(ctx context.Context, concurrency int) { g.ServeWork(ctx, concurrency, nil) }

// ServeWork is like Serve, and also answers the requests of rank 0's Work: many goroutines call
// answer, with a context that ends when the rank is dismissed; ServeWork returns when all calls
// have.
func (g *Group) ServeWork(ctx context.Context, concurrency int,
	answer func(ctx context.Context, request []byte) ([]byte, error),
) {
	var working sync.WaitGroup
	defer working.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // work that nobody waits for any more
	s := &server{[2]*systemLister{
		newSystemLister(concurrency, false),
		newSystemLister(concurrency, true),
	}, nil, nil}
	s.listers[1].places = s.listers[0].places
	s.sums = &summer{storage: SystemStorage{}, places: s.listers[0].places}
	s.work = answer
	for r := range g.requests {
		if r.kind == dismiss {
			return
		}
		start := func(work func()) { go work() }
		if r.kind == askWork {
			start = working.Go
		}
		start(func() {
			reply, err := s.answer(ctx, r)
			g.reply(r.number, reply, err)
		})
	}
}

// Work sends request (at most 16 MiB) to rank's ServeWork and returns its answer's reply. Only rank
// 0 calls it, from any number of goroutines, with at most 4,096 requests to a rank at a time. The
// error of another rank names it.
func (g *Group) Work(ctx context.Context, rank int, request []byte) ([]byte, error) {
	return g.ask(ctx, rank, askWork, request)
}

// A server answers rank 0's requests; all of its parts share one list of places, which bounds their
// requests to the storage.
type server struct {
	listers [2]*systemLister // without and with ScanOptions.Sync
	sums    *summer
	work    func(context.Context, []byte) ([]byte, error) // nil: none
}

func (s *server) answer(ctx context.Context, r request) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	switch r.kind {
	case askList:
		return s.answerList(ctx, r.data)
	case askSums:
		return s.answerSums(ctx, r.data)
	case askWork:
		if s.work != nil {
			return s.work(ctx, r.data)
		}
	}
	return nil, fmt.Errorf("unknown request kind %q", r.kind)
}

// reply sends a call's result to rank 0.
func (g *Group) reply(number uint32, data []byte, err error) {
	if err != nil {
		gone := (*vanishedError)(nil)
		head := byte(0)
		if errors.As(err, &gone) {
			head = 1
		}
		g.post(0, number, replyError, append([]byte{head}, err.Error()...))
		return
	}
	for len(data) > replyBytes {
		g.post(0, number, replyMore, data[:replyBytes])
		data = data[replyBytes:]
	}
	g.post(0, number, replyLast, data)
}

// listers returns the listers of the other ranks, several per rank, so that it always has a next
// folder.
func (g *Group) listers(concurrency int, sync bool) []lister {
	var all []lister
	each := min(2*concurrency, requestsAhead)
	for to := 1; to < g.Size(); to++ {
		for range each {
			all = append(all, &remoteLister{g, to, sync})
		}
	}
	return all
}

// A remoteLister lists folders on another rank.
type remoteLister struct {
	group *Group
	rank  int
	sync  bool
}

const (
	listSync  = 1
	listKnown = 2
)

func (l *remoteLister) list(ctx context.Context, path string, known *int64) (*listing, error) {
	flags, modTime := byte(0), int64(0)
	if l.sync {
		flags |= listSync
	}
	if known != nil {
		flags, modTime = flags|listKnown, *known
	}
	data := binary.AppendVarint([]byte{flags}, modTime)
	reply, err := l.group.ask(ctx, l.rank, askList, append(data, path...))
	if err != nil || len(reply) == 0 {
		return nil, err
	}
	return parseListing(reply)
}

// answerList is the other side of remoteLister.list.
func (s *server) answerList(ctx context.Context, data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, errors.New("an empty request")
	}
	in := varints{rest: data[1:]}
	modTime := in.signed()
	known := &modTime
	if data[0]&listKnown == 0 {
		known = nil
	}
	l, err := s.listers[data[0]&listSync].list(ctx, string(in.rest), known)
	if err != nil || l == nil {
		return nil, err
	}
	return l.append(nil), nil
}
