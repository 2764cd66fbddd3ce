package ranks

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
)

// A message of Calls is one of these, the call's number (u32), and bytes.
const (
	request byte = iota
	reply
	failure // the bytes are the error's text
)

const callHead = 5

// Calls are requests that ranks send each other on one channel. Each has one reply.
type Calls struct {
	mux     *Mux
	channel byte
	answer  Answer

	mu      sync.Mutex
	waiting map[uint32]chan response
	next    uint32
}

// An Answer handles a request; it is called by the transport's goroutine and must not block. reply
// must be called once, then or later, by any goroutine. The request is valid during the call only.
type Answer func(from int, request []byte, reply func([]byte, error))

type response struct {
	body []byte
	err  error
}

// A RemoteError is the error that a call failed with at another rank.
type RemoteError struct {
	Rank int
	Text string
}

func (e *RemoteError) Error() string { return fmt.Sprintf("%s (rank %d)", e.Text, e.Rank) }

// NewCalls makes and answers calls on a channel of m.
func NewCalls(m *Mux, channel byte, answer Answer) *Calls {
	c := &Calls{mux: m, channel: channel, answer: answer, waiting: map[uint32]chan response{}}
	m.Handle(channel, c.handle)
	return c
}

// Call sends a request to a rank and returns its reply. Errors: RemoteError, and ctx's cause.
func (c *Calls) Call(ctx context.Context, to int, body []byte) ([]byte, error) {
	done := make(chan response, 1)
	c.mu.Lock()
	c.next++
	number := c.next
	c.waiting[number] = done
	c.mu.Unlock()
	c.send(to, request, number, body)
	select {
	case r := <-done:
		return r.body, r.err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, number)
		return nil, context.Cause(ctx)
	}
}

func (c *Calls) send(to int, kind byte, number uint32, body []byte) {
	head := binary.LittleEndian.AppendUint32(make([]byte, 0, callHead+len(body)), number)
	c.mux.Send(to, c.channel, append(append(head, kind), body...))
}

func (c *Calls) handle(from int, msg []byte) {
	if len(msg) < callHead {
		return
	}
	number, kind, body := binary.LittleEndian.Uint32(msg), msg[4], msg[callHead:]
	if kind == request {
		c.answer(from, body, func(result []byte, err error) {
			if err != nil {
				c.send(from, failure, number, []byte(err.Error()))
				return
			}
			c.send(from, reply, number, result)
		})
		return
	}
	c.mu.Lock()
	done := c.waiting[number]
	delete(c.waiting, number)
	c.mu.Unlock()
	switch {
	case done == nil: // its caller gave up
	case kind == failure:
		done <- response{err: &RemoteError{from, string(body)}}
	default:
		done <- response{body: append([]byte(nil), body...)}
	}
}
