package ranks

import (
	"sync"
	"time"
)

// WatchOptions are what a Watch sends and reports. Its functions are called without a lock.
type WatchOptions struct {
	Ticks <-chan time.Time            // nil: one a second
	Bound int                         // ticks without a sign of life after which a rank is lost
	Sign  func() []byte               // makes a sign of life
	Heard func(from int, sign []byte) // by the transport's goroutine: must not block
	Lost  func(rank int)              // is called once, until the rank is heard from again
}

// A Watch finds ranks that are gone: at each tick rank 0 sends a sign of life to every rank, and
// every rank to rank 0. It counts ticks, not seconds, so that a process that was stopped for a
// while does not declare the others lost.
type Watch struct {
	mux     *Mux
	channel byte
	opt     WatchOptions
	stop    chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	silent []int // ticks since the last sign of each rank
}

// NewWatch starts a watch on a channel of m.
func NewWatch(m *Mux, channel byte, opt WatchOptions) *Watch {
	w := &Watch{
		mux: m, channel: channel, opt: opt, stop: make(chan struct{}), silent: make([]int, m.Size()),
	}
	m.Handle(channel, func(from int, sign []byte) {
		w.mu.Lock()
		w.silent[from] = 0
		w.mu.Unlock()
		opt.Heard(from, sign)
	})
	w.running.Go(w.run)
	return w
}

// Stop ends the watch, and waits for its running callbacks.
func (w *Watch) Stop() {
	close(w.stop)
	w.running.Wait()
}

// Send sends a sign of life between ticks.
func (w *Watch) Send() {
	if w.mux.Rank() == 0 {
		w.mux.SendOthers(w.channel, w.opt.Sign())
	} else {
		w.mux.Send(0, w.channel, w.opt.Sign())
	}
}

func (w *Watch) run() {
	ticks := w.opt.Ticks
	if ticks == nil {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ticks:
		case <-w.stop:
			return
		}
		lost := w.tick()
		w.Send()
		for _, rank := range lost {
			w.opt.Lost(rank)
		}
	}
}

// tick counts a tick for the ranks that send signs here, and returns those now lost.
func (w *Watch) tick() (lost []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rank := range w.silent {
		if rank == w.mux.Rank() || w.mux.Rank() != 0 && rank != 0 {
			continue
		}
		if w.silent[rank]++; w.silent[rank] == w.opt.Bound {
			lost = append(lost, rank)
		}
	}
	return lost
}
