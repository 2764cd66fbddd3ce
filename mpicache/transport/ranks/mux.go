// Package ranks holds what the protocols between ranks share: messages of any length on channels
// (Mux), requests with replies (Calls), values that every rank sends or receives (Spread, Gather,
// Exchange), and signs of life (Watch).
package ranks

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"rankpool/mpicache/transport"
)

// partBytes is the size of a part of a long message; a transport carries at most 64 MiB at once.
const partBytes = 1 << 20

// A message is its channel, one of these, the number of a long message (u32, for its parts only),
// and bytes.
const (
	whole byte = iota
	part
	lastPart
	wake // deliver what has waited for Handle
)

// A Mux carries messages of any length on up to 256 channels over one transport. The messages that
// one goroutine sends to a rank on a channel arrive in order.
//
// Each channel has either a handler or a receiver; messages wait for it. All methods may be called
// from many goroutines, but only one at a time may receive from a channel. Put, Take and Close are
// the transport's; Start and Post belong to the Mux.
type Mux struct {
	transport.Transport
	long  atomic.Uint32 // the number of the latest long message from here
	parts map[partKey][]byte

	mu       sync.Mutex
	channels [256]channel
}

type partKey struct {
	from   int
	number uint32
}

type channel struct {
	handle  func(from int, body []byte) // nil: messages wait for Receive
	inbox   []Message
	arrived chan struct{} // nil until Receive waits; holds a token if inbox may be non-empty
}

// A Message is what rank From sent.
type Message struct {
	From int
	Body []byte
}

// NewMux starts to receive from t, which must not be started.
func NewMux(t transport.Transport) *Mux {
	m := &Mux{Transport: t, parts: map[partKey][]byte{}}
	for i := range m.channels {
		m.channels[i].arrived = make(chan struct{}, 1)
	}
	t.Start(m.receive)
	return m
}

// Send sends a message to a rank, possibly this one. It copies body and never waits for the peer.
func (m *Mux) Send(to int, channel byte, body []byte) {
	if len(body) <= partBytes {
		m.Post(to, append([]byte{channel, whole}, body...))
		return
	}
	number := m.long.Add(1)
	for kind := part; kind == part; {
		n := min(partBytes, len(body))
		if n == len(body) {
			kind = lastPart
		}
		head := binary.LittleEndian.AppendUint32([]byte{channel, kind}, number)
		m.Post(to, append(head, body[:n]...))
		body = body[n:]
	}
}

// SendOthers sends a message to every rank but this one.
func (m *Mux) SendOthers(channel byte, body []byte) {
	for to := range m.Size() {
		if to != m.Rank() {
			m.Send(to, channel, body)
		}
	}
}

// Handle makes the transport's goroutine call handle for each message of a channel, including those
// that have arrived before. handle must not block; body is valid during the call only. Handle is
// called once for a channel.
func (m *Mux) Handle(channel byte, handle func(from int, body []byte)) {
	m.mu.Lock()
	m.channels[channel].handle = handle
	m.mu.Unlock()
	m.Post(m.Rank(), []byte{channel, wake})
}

// Receive waits for the next message of a channel. It returns ctx's cause when ctx ends.
func (m *Mux) Receive(ctx context.Context, channel byte) (Message, error) {
	c := &m.channels[channel]
	for {
		m.mu.Lock()
		if len(c.inbox) > 0 {
			first := c.inbox[0]
			c.inbox = c.inbox[1:]
			m.mu.Unlock()
			return first, nil
		}
		m.mu.Unlock()
		select {
		case <-c.arrived:
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		}
	}
}

// Deliver delivers body as if rank from had sent it. The channel must have no handler.
func (m *Mux) Deliver(from int, channel byte, body []byte) {
	c := &m.channels[channel]
	m.mu.Lock()
	defer m.mu.Unlock()
	c.inbox = append(c.inbox, Message{from, body})
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

// Channel returns a channel as a transport of its own. Put, Take and Close are the Mux's.
func (m *Mux) Channel(number byte) transport.Transport { return muxChannel{m, number} }

type muxChannel struct {
	*Mux
	number byte
}

func (c muxChannel) Start(handle func(from int, msg []byte)) { c.Handle(c.number, handle) }
func (c muxChannel) Post(to int, msg []byte)                 { c.Send(to, c.number, msg) }

// receive handles a message of the transport, which is valid during the call only.
func (m *Mux) receive(from int, msg []byte) {
	if len(msg) < 2 {
		return
	}
	number, kind, body := msg[0], msg[1], msg[2:]
	if kind == part || kind == lastPart {
		key := partKey{from, binary.LittleEndian.Uint32(body)}
		body = append(m.parts[key], body[4:]...)
		if kind == part {
			m.parts[key] = body
			return
		}
		delete(m.parts, key)
	}
	c := &m.channels[number]
	m.mu.Lock()
	handle, waiting := c.handle, c.inbox
	if handle != nil {
		c.inbox = nil
	}
	m.mu.Unlock()
	switch {
	case handle != nil:
		for _, early := range waiting {
			handle(early.From, early.Body)
		}
		if kind != wake {
			handle(from, body)
		}
	case kind != wake:
		m.Deliver(from, number, bytes.Clone(body))
	}
}
