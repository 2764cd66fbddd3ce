package transport

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// Local is a rank of a group inside one process: messages are passed on, bytes are copied. The
// product uses it for a single rank, tests for many.
type Local struct {
	rank   int
	peers  []*Local
	box    mailbox
	wake   chan struct{} // holds one token when the mailbox may be non-empty
	ended  chan struct{}
	close  sync.Once
	silent atomic.Bool

	// The goroutine's own:
	pairs  *pairing
	handle func(from int, msg []byte)
	early  []func() // deliveries that wait for Start
	stop   bool
}

// NewLocal returns the n (≥ 1) ranks of a group, each a *Local.
func NewLocal(n int) []Transport {
	if n < 1 {
		panic("transport: a group of no ranks")
	}
	peers := make([]*Local, n)
	group := make([]Transport, n)
	for i := range peers {
		peers[i] = &Local{
			rank: i, peers: peers, wake: make(chan struct{}, 1),
			ended: make(chan struct{}), pairs: newPairing(),
		}
		group[i] = peers[i]
	}
	for _, l := range peers {
		go l.run()
	}
	return group
}

// run makes the calls of the mailbox until Close.
func (l *Local) run() {
	defer close(l.ended)
	for !l.stop {
		if l.box.drain() == 0 {
			<-l.wake
		}
	}
}

// call runs f on l's goroutine.
func (l *Local) call(f func()) {
	if l.box.put(f) {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// reach runs f on to's goroutine, unless l is closed or one of the two is silent.
func (l *Local) reach(to *Local, f func()) {
	if l.box.isClosed() {
		return
	}
	to.call(func() {
		if l == to || !l.silent.Load() && !to.silent.Load() {
			f()
		}
	})
}

// Rank implements Transport.
func (l *Local) Rank() int { return l.rank }

// Size implements Transport.
func (l *Local) Size() int { return len(l.peers) }

// Start implements Transport.
func (l *Local) Start(handle func(from int, msg []byte)) {
	l.call(func() {
		l.handle = handle
		for _, deliver := range l.early {
			deliver()
		}
		l.early = nil
	})
}

// Post implements Transport.
func (l *Local) Post(to int, msg []byte) {
	checkPost(to, len(l.peers), msg)
	peer, msg := l.peers[to], bytes.Clone(msg)
	l.reach(peer, func() {
		if peer.handle == nil {
			peer.early = append(peer.early, func() { peer.handle(l.rank, msg) })
			return
		}
		peer.handle(l.rank, msg)
	})
}

// Put implements Transport.
func (l *Local) Put(to int, ticket uint32, segs [][]byte, done func(error)) {
	checkPeer(to, len(l.peers))
	peer := l.peers[to]
	l.reach(peer, func() {
		peer.pairs.put(pairKey{l.rank, ticket}, half{segs, func(err error) {
			peer.reach(l, func() { done(err) })
		}})
	})
}

// Take implements Transport.
func (l *Local) Take(from int, ticket uint32, segs [][]byte, done func(error)) {
	checkPeer(from, len(l.peers))
	l.call(func() { l.pairs.take(pairKey{from, ticket}, half{segs, done}) })
}

// Silence is for fault tests: from now on nothing from or to this rank arrives, as if its node were
// gone. Its messages to itself still do.
func (l *Local) Silence() { l.silent.Store(true) }

// Close implements Transport; it waits for queued calls, and for copies that peers are making from
// its memory. It must not be called from a callback.
func (l *Local) Close() error {
	l.close.Do(func() {
		l.call(func() { l.stop = true })
		l.box.close()
		<-l.ended
		l.withdraw()
	})
	return nil
}

// withdraw cancels the Puts that peers have not taken: their memory becomes invalid.
func (l *Local) withdraw() {
	for _, peer := range l.peers {
		if peer == l {
			continue
		}
		done := make(chan struct{})
		peer.call(func() {
			peer.pairs.forget(l.rank)
			close(done)
		})
		select {
		case <-done:
		case <-peer.ended:
		}
	}
}
