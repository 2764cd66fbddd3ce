package ranks

import (
	"context"
	"sync"
	"time"

	"rankpool/mpicache/liveness"
	"rankpool/mpicache/transport"
)

// WatchOptions are what a Watch sends and reports. Its functions are called without a lock.
type WatchOptions struct {
	Bound time.Duration    // silence after which a rank is lost
	Ticks <-chan time.Time // nil: one every liveness.Every(Bound)
	Lost  func(rank int)   // is called once, until the rank is heard from again
	Sign  func() []byte    // what a sign of life carries; nil: nothing
	// Heard gets what a sign carries, from the transport's goroutine: it must not block. nil: nobody
	Heard func(from int, sign []byte)
}

// A Watch sends the other ranks signs of life, and notices when theirs stop. It needs no storage,
// plan or disk.
//
// Signs from and to rank 0 are sent at every tick; those between other ranks, of which there are
// many pairs, less often: they detect a network that is cut only between two ranks that both reach
// rank 0. MPI itself does not report a rank that is stopped or hangs, whose node is lost or whose
// network is cut, or does so only after a quarter of an hour.
type Watch struct {
	transport transport.Transport
	opt       WatchOptions
	stop      chan struct{}
	beating   sync.WaitGroup

	mu      sync.Mutex
	silence *liveness.Watch // of all ranks
	left    map[int]bool    // ranks not to miss: those that said that they leave, and this one
	turns   int             // each rank but 0 gets a sign in one of this many ticks
	turn    int             // of the newest tick
	while   func(rank int)  // is called at each tick while a rank is lost
	asked   map[int]bool    // ranks whose answer AllLive waits for
	all     chan struct{}   // is closed when there are none
}

// A message of a Watch is one of these, and bytes.
const (
	sign   byte = iota
	asks        // for an answer
	answer      // the sender lives
	leaves      // the sender ends by itself, and sends no more signs
)

// signsWithin is how many signs of life are due from each other rank within the bound: at 1,024
// ranks and a bound of two minutes a rank sends 70 a second.
const signsWithin = 8

// NewWatch returns a watch that answers the other ranks, which all use the channel t for their
// watches only. It does not tick before Start.
func NewWatch(t transport.Transport, opt WatchOptions) *Watch {
	w := &Watch{
		transport: t, opt: opt, stop: make(chan struct{}),
		turns:   max(1, int(opt.Bound/signsWithin/liveness.Every(opt.Bound))),
		silence: liveness.NewWatch(t.Size(), opt.Bound), left: map[int]bool{t.Rank(): true},
	}
	t.Start(w.receive)
	return w
}

// Start begins to tick.
func (w *Watch) Start() {
	every := liveness.Every(w.opt.Bound)
	w.beating.Go(func() {
		began, given := time.Now(), time.Duration(0)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		ticks := w.opt.Ticks
		if ticks == nil {
			ticks = ticker.C
		}
		for {
			select {
			case <-w.stop:
				return
			case <-ticks:
			}
			if given += every; w.opt.Ticks != nil {
				w.Tick(given)
			} else {
				w.Tick(time.Since(began))
			}
		}
	})
}

// Stop ends the ticks, and waits for its running callbacks. The other ranks will miss this one.
func (w *Watch) Stop() {
	close(w.stop)
	w.beating.Wait()
}

// Bound returns the silence after which a rank is lost.
func (w *Watch) Bound() time.Duration { return w.opt.Bound }

// While makes the watch call do at each tick while a rank is lost.
func (w *Watch) While(do func(lost int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.while = do
}

// Tick sends this rank's signs of life, and reports the ranks that are silent. Start calls it.
func (w *Watch) Tick(now time.Duration) {
	own := []byte{sign}
	if w.opt.Sign != nil {
		own = append(own, w.opt.Sign()...)
	}
	for _, rank := range w.next() {
		w.transport.Post(rank, own)
	}
	newly, all, while := w.silent(now)
	for _, rank := range newly {
		w.opt.Lost(rank)
	}
	if len(all) > 0 && while != nil {
		while(all[0])
	}
}

// next returns the ranks to send the next sign of life to.
func (w *Watch) next() (to []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn++
	own := w.transport.Rank()
	for r := range w.transport.Size() {
		if r != own && (own == 0 || r == 0 || (w.turn+r)%w.turns == 0) {
			to = append(to, r)
		}
	}
	return to
}

// silent sets the time, and returns the ranks that have now become silent for too long, all that
// are, and what to do while there are any.
func (w *Watch) silent(now time.Duration) (newly, all []int, while func(rank int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.left {
		w.silence.Heard(r)
	}
	newly = w.silence.Tick(now)
	for r := range w.transport.Size() {
		if w.silence.Lost(r) {
			all = append(all, r)
		}
	}
	return newly, all, w.while
}

// receive handles another rank's message.
func (w *Watch) receive(from int, msg []byte) {
	if len(msg) == 0 {
		return
	}
	w.hear(from, msg[0])
	switch {
	case msg[0] == asks:
		w.transport.Post(from, []byte{answer})
	case msg[0] == sign && w.opt.Heard != nil:
		w.opt.Heard(from, msg[1:])
	}
}

func (w *Watch) hear(from int, kind byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silence.Heard(from)
	if kind == leaves {
		w.left[from] = true
	}
	if (kind == answer || kind == leaves) && w.asked[from] {
		delete(w.asked, from)
		if len(w.asked) == 0 {
			close(w.all)
		}
	}
}

// Leave tells the other ranks that this one is shutting down, so they do not treat it as lost.
func (w *Watch) Leave() { w.toOthers(leaves) }

// Left records that a rank has shut down.
func (w *Watch) Left(rank int) { w.hear(rank, leaves) }

// AllLive asks the other ranks for an answer, and reports whether each that has not left gives one
// before ctx ends. One call at a time.
func (w *Watch) AllLive(ctx context.Context) bool {
	w.mu.Lock()
	w.asked, w.all = map[int]bool{}, make(chan struct{})
	for r := range w.transport.Size() {
		if !w.left[r] {
			w.asked[r] = true
		}
	}
	none, all := len(w.asked) == 0, w.all
	w.mu.Unlock()
	if none {
		return true
	}
	w.toOthers(asks)
	select {
	case <-all:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *Watch) toOthers(kind byte) {
	for r := range w.transport.Size() {
		if r != w.transport.Rank() {
			w.transport.Post(r, []byte{kind})
		}
	}
}
