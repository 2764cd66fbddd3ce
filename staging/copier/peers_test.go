package copier

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
)

// memory is a rank of a group inside the test, as a transport would be: one goroutine makes all its
// callbacks.
type memory struct {
	rank   int
	group  []*memory
	calls  chan func()
	handle func(from int, msg []byte)
	silent atomic.Bool // as if its node were gone
	posts  func(kind byte)

	mu          sync.Mutex
	puts, takes map[string]half
	early       []func()
}

type half struct {
	segs [][]byte
	done func(error)
}

// newMemory returns the n ranks of a group.
func newMemory(n int) []*memory {
	group := make([]*memory, n)
	for i := range group {
		group[i] = &memory{
			rank: i, calls: make(chan func(), 1<<16), puts: map[string]half{},
			takes: map[string]half{},
		}
	}
	for _, m := range group {
		m.group = group
		go func() {
			for call := range m.calls {
				call()
			}
		}()
	}
	return group
}

func (m *memory) Rank() int { return m.rank }
func (m *memory) Size() int { return len(m.group) }

func (m *memory) Start(handle func(from int, msg []byte)) {
	m.calls <- func() {
		m.handle = handle
		for _, call := range m.early {
			call()
		}
	}
}

func (m *memory) Post(to int, msg []byte) {
	peer, msg := m.group[to], bytes.Clone(msg)
	if m.posts != nil {
		m.posts(msg[0])
	}
	if m.silent.Load() || peer.silent.Load() {
		return
	}
	peer.calls <- func() {
		if peer.handle == nil {
			peer.early = append(peer.early, func() { peer.handle(m.rank, msg) })
			return
		}
		peer.handle(m.rank, msg)
	}
}

func (m *memory) Put(to int, ticket uint32, segs [][]byte, done func(error)) {
	if m.silent.Load() {
		return
	}
	m.group[to].meet(m.rank, ticket, half{segs, func(err error) { m.calls <- func() { done(err) } }},
		true)
}

func (m *memory) Take(from int, ticket uint32, segs [][]byte, done func(error)) {
	m.meet(from, ticket, half{segs, func(err error) { m.calls <- func() { done(err) } }}, false)
}

// meet copies when both halves of a transfer to m are there.
func (m *memory) meet(from int, ticket uint32, mine half, isPut bool) {
	key := fmt.Sprint(from, " ", ticket)
	m.mu.Lock()
	defer m.mu.Unlock()
	ours, theirs := m.takes, m.puts
	if isPut {
		ours, theirs = m.puts, m.takes
	}
	other, found := theirs[key]
	if !found {
		if _, twice := ours[key]; twice {
			panic("ticket " + key + " is in use")
		}
		ours[key] = mine
		return
	}
	delete(theirs, key)
	put, take := mine, other
	if !isPut {
		put, take = other, mine
	}
	for i := range put.segs {
		if len(put.segs[i]) != len(take.segs[i]) {
			panic("lengths differ")
		}
		copy(take.segs[i], put.segs[i])
	}
	put.done(nil)
	take.done(nil)
}
