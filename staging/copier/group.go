package copier

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"sync"
)

// Peers is what staging needs of the ranks' transport: control messages in order, and bytes by a
// Put and a Take of the same ticket; see transport.Transport. Callbacks (handle, done) are called
// one at a time and must not block.
type Peers interface {
	Rank() int
	Size() int
	Start(handle func(from int, msg []byte))
	Post(to int, msg []byte)
	Put(to int, ticket uint32, segs [][]byte, done func(error))
	Take(from int, ticket uint32, segs [][]byte, done func(error))
}

// partBytes is the size of a part of a long message; a transport's control messages have at most 64
// MiB.
const partBytes = 8 << 20

// The kinds of messages.
const (
	kindPlan   byte = iota // rank 0 to all: the plan
	kindNeed               // to rank 0: what a rank is missing
	kindNeeds              // rank 0 to all: what every rank is missing
	kindHead               // to the next of a chain: announces a frame
	kindTaken              // back: the frame has arrived
	kindBeat               // between rank 0 and every rank: alive, and progress
	kindDone               // to rank 0: all files are placed
	kindSettle             // rank 0 to all: no rank writes any more
	kindReport             // to rank 0: the rank's report
	kindEnd                // rank 0 to all: the end
	kindAbort              // to rank 0 and from it to all: an error
	kinds
)

// A group is the ranks that stage together. Each kind of message has one reader at a time.
type group struct {
	Peers
	abort context.CancelCauseFunc

	mu      sync.Mutex
	boxes   [kinds][]inbound
	arrived [kinds]chan struct{} // holds a token if its box may be non-empty
	parts   map[letterKey][]byte
	direct  [kinds]func(from int, body []byte) // called at once, instead of using the box
}

type inbound struct {
	from int
	body []byte
}

type letterKey struct {
	from int
	kind byte
}

// newGroup starts to receive; direct handlers must be passed here. abort is called with another
// rank's error.
func newGroup(peers Peers, abort context.CancelCauseFunc,
	direct map[byte]func(from int, body []byte),
) *group {
	g := &group{Peers: peers, abort: abort, parts: map[letterKey][]byte{}}
	for kind := range g.arrived {
		g.arrived[kind] = make(chan struct{}, 1)
	}
	g.direct[kindAbort] = g.aborted
	for kind, handle := range direct {
		g.direct[kind] = handle
	}
	peers.Start(g.handle)
	return g
}

// handle sorts a message; msg is valid during the call only.
func (g *group) handle(from int, msg []byte) {
	kind, more, part := msg[0], msg[1] != 0, msg[2:]
	if kind >= kinds {
		return
	}
	key := letterKey{from, kind}
	body := append(g.parts[key], part...)
	if more {
		g.parts[key] = body
		return
	}
	delete(g.parts, key)
	if handle := g.direct[kind]; handle != nil {
		handle(from, body)
		return
	}
	g.deliver(from, kind, body)
}

// deliver puts a message into its box.
func (g *group) deliver(from int, kind byte, body []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.boxes[kind] = append(g.boxes[kind], inbound{from, body})
	select {
	case g.arrived[kind] <- struct{}{}:
	default:
	}
}

// sendRaw sends a message of any length.
func (g *group) sendRaw(to int, kind byte, body []byte) {
	for len(body) > partBytes {
		g.Post(to, append([]byte{kind, 1}, body[:partBytes]...))
		body = body[partBytes:]
	}
	g.Post(to, append([]byte{kind, 0}, body...))
}

func (g *group) send(to int, kind byte, v any) { g.sendRaw(to, kind, encode(v)) }

// receive waits for a message of that kind. It returns ctx's cause when ctx ends.
func (g *group) receive(ctx context.Context, kind byte) (inbound, error) {
	for {
		g.mu.Lock()
		if box := g.boxes[kind]; len(box) > 0 {
			g.boxes[kind] = box[1:]
			g.mu.Unlock()
			return box[0], nil
		}
		g.mu.Unlock()
		select {
		case <-g.arrived[kind]:
		case <-ctx.Done():
			return inbound{}, context.Cause(ctx)
		}
	}
}

// spread sends rank 0's v to all ranks, down a binary tree; elsewhere it fills in v.
func spread[T any](ctx context.Context, g *group, kind byte, v *T) error {
	var body []byte
	if g.Rank() == 0 {
		body = encode(v)
	} else {
		l, err := g.receive(ctx, kind)
		if err != nil {
			return err
		}
		body = l.body
	}
	for child := 2*g.Rank() + 1; child <= 2*g.Rank()+2 && child < g.Size(); child++ {
		g.sendRaw(child, kind, body)
	}
	if g.Rank() == 0 {
		return nil
	}
	return decode(body, v)
}

// collect sends every rank's v to rank 0, which returns them by rank; the others return nil.
func collect[T any](ctx context.Context, g *group, kind byte, v T) ([]T, error) {
	if g.Rank() != 0 {
		g.send(0, kind, &v)
		return nil, nil
	}
	all := make([]T, g.Size())
	all[0] = v
	came := map[int]bool{}
	for len(came) < g.Size()-1 {
		l, err := g.receive(ctx, kind)
		if err != nil {
			return all, err
		}
		if came[l.from] { // it was taken for dead, but is alive
			continue
		}
		came[l.from] = true
		if err := decode(l.body, &all[l.from]); err != nil {
			return all, err
		}
	}
	return all, nil
}

// An abortError is what ended staging on another rank.
type abortError struct{ sentence string }

func (e abortError) Error() string { return e.sentence }

// abortAll ends staging on all ranks with this rank's err; the first one counts.
func (g *group) abortAll(err error) {
	g.abort(err)
	body := []byte(fmt.Sprintf("rank %d: %v", g.Rank(), err))
	if g.Rank() != 0 {
		g.sendRaw(0, kindAbort, body)
		return
	}
	g.tellAll(body)
}

func (g *group) tellAll(body []byte) {
	for to := 1; to < g.Size(); to++ {
		g.sendRaw(to, kindAbort, body)
	}
}

// aborted handles another rank's error; rank 0 forwards it.
func (g *group) aborted(_ int, body []byte) {
	g.abort(abortError{string(body)})
	if g.Rank() == 0 {
		g.tellAll(body)
	}
}

func encode(v any) []byte {
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(v); err != nil {
		panic(fmt.Sprintf("copier: a message cannot be encoded: %v", err))
	}
	return out.Bytes()
}

func decode(body []byte, v any) error {
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(v); err != nil {
		return fmt.Errorf("copier: a message from another rank is damaged: %w", err)
	}
	return nil
}
