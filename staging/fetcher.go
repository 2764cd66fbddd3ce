package staging

import (
	"container/heap"
	"errors"
	"fmt"
	"sync"
	"time"

	"rankpool/scheduler"
)

const (
	// DefaultFetchConcurrency is how many reads a Fetcher has under way when FetchOptions does not say.
	DefaultFetchConcurrency = 16

	// DefaultRetries is how often a read is tried again when FetchOptions does not say.
	DefaultRetries = 4

	// firstDelay is the wait before the first retry; each next one is four times as long, at most maxDelay. The
	// default retries wait 1.7 s in all: chosen, so that a short fail-over passes and training is not held up long.
	firstDelay = 20 * time.Millisecond
	maxDelay   = 2 * time.Second
)

// ErrClosed is what done gets when the Fetcher was closed before the sample was read.
var ErrClosed = errors.New("staging: the fetcher is closed")

// FetchOptions says how to fetch. The zero value is ready to use.
type FetchOptions struct {
	Concurrency   int     // reads under way at a time; 0: DefaultFetchConcurrency
	Retries       int     // how often a read is tried again; 0: DefaultRetries, negative: never
	KeepPageCache bool    // leave what was read in the page cache; else it is dropped, because the slab holds it
	Storage       Storage // nil: SystemStorage
}

// A Fetcher reads samples from storage into memory that the caller provides, the sample needed first first.
//
// A fixed number of goroutines takes reads from one queue. A read that fails and may succeed later goes back to the
// queue after a while, and keeps nobody busy meanwhile. All methods are safe for concurrent use.
type Fetcher struct {
	manifest *Manifest
	opt      FetchOptions
	counters counters
	workers  sync.WaitGroup

	mu     sync.Mutex
	wake   sync.Cond // a read was queued, or the Fetcher closed
	queue  readQueue
	seq    uint64                // reads ever asked for
	asked  readsByID             // not done
	paused map[*read]*time.Timer // waiting for their next try
	closed bool
}

// NewFetcher starts a Fetcher of the samples of m. The caller must Close it.
func NewFetcher(m *Manifest, opt FetchOptions) *Fetcher {
	if opt.Concurrency <= 0 {
		opt.Concurrency = DefaultFetchConcurrency
	}
	if opt.Retries == 0 {
		opt.Retries = DefaultRetries
	}
	if opt.Storage == nil {
		opt.Storage = SystemStorage{}
	}
	f := &Fetcher{
		manifest: m, opt: opt,
		asked: make(readsByID), paused: make(map[*read]*time.Timer),
	}
	f.wake.L = &f.mu
	for range opt.Concurrency {
		f.workers.Go(f.work)
	}
	return f
}

// Fetch asks for sample id, needed at time need (any measure that orders uses; the least is read first, equal ones
// in the order of asking). len(into) must be the sample's size. It returns at once.
//
// done is called exactly once, on another goroutine, with nil when into holds the sample. It must not block for
// long, as it holds up a reader, and must not call Close. Until then into belongs to the Fetcher; after an error its
// content is undefined. Errors: a *SampleError, or ErrClosed.
//
// It panics when id is not in the manifest or into has another size.
func (f *Fetcher) Fetch(id scheduler.SampleID, into []byte, need uint64, done func(error)) {
	if int64(id) >= int64(f.manifest.Len()) {
		panic(fmt.Sprintf("staging: Fetch of sample %d, the manifest has %d", id, f.manifest.Len()))
	}
	if size := f.manifest.Size(id); int64(len(into)) != size {
		panic(fmt.Sprintf("staging: Fetch of sample %d into %d bytes, its size is %d", id, len(into), size))
	}
	f.counters.inFlight.Add(1)
	r := &read{id: id, into: into, need: need, done: done}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		go f.finish(r, ErrClosed)
		return
	}
	r.seq = f.seq
	f.seq++
	f.asked.add(r)
	f.enqueue(r)
}

// Promote makes all reads of sample id that have not begun as urgent as need, if they were less so. A sample that
// nobody asked for is ignored.
func (f *Fetcher) Promote(id scheduler.SampleID, need uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := f.asked[id]; r != nil; r = r.sameID {
		if need >= r.need {
			continue
		}
		r.need = need
		if r.place >= 0 {
			heap.Fix(&f.queue, r.place)
		}
	}
}

// Stats returns the counters of the Fetcher so far.
func (f *Fetcher) Stats() Stats { return f.counters.read() }

// Close ends the Fetcher: reads under way end, all others get ErrClosed. It returns when the done of every read asked
// for before has returned. Closing again does nothing.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.closed = true
	for r, timer := range f.paused {
		timer.Stop() // if it is too late to stop, resume finds nothing to do
		delete(f.paused, r)
		f.enqueue(r)
	}
	f.wake.Broadcast()
	f.mu.Unlock()
	f.workers.Wait()
}

// work is one reader: it reads what is most urgent until the Fetcher is closed and nothing is left.
func (f *Fetcher) work() {
	for {
		r, closed := f.take()
		if r == nil {
			return
		}
		err := ErrClosed
		if !closed {
			failed := r.try(f.manifest, f.opt)
			if failed != nil && failed.mayPass && f.pause(r) {
				continue
			}
			err = failed.sampleError(f.manifest, r)
		}
		f.finish(r, err)
	}
}

// take waits for the most urgent read. It returns nil when there is none and the Fetcher is closed.
func (f *Fetcher) take() (r *read, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 {
		if f.closed {
			return nil, true
		}
		f.wake.Wait()
	}
	return heap.Pop(&f.queue).(*read), f.closed
}

// enqueue puts a read into the queue. f.mu is held.
func (f *Fetcher) enqueue(r *read) {
	heap.Push(&f.queue, r)
	f.wake.Signal()
}

// pause keeps a read for its next try, and reports false if there is to be none.
func (f *Fetcher) pause(r *read) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.tries > f.opt.Retries || f.closed {
		return false
	}
	f.counters.retries.Add(1)
	f.paused[r] = time.AfterFunc(delay(r.tries), func() { f.resume(r) })
	return true
}

// resume puts a paused read back into the queue, with the urgency it has by now.
func (f *Fetcher) resume(r *read) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, still := f.paused[r]; still {
		delete(f.paused, r)
		f.enqueue(r)
	}
}

// delay returns how long to wait after a read has failed tries > 0 times.
func delay(tries int) time.Duration {
	d := firstDelay
	for range tries - 1 {
		d = min(4*d, maxDelay)
	}
	return d
}

// finish forgets a read, counts it and tells who asked for it.
func (f *Fetcher) finish(r *read, err error) {
	f.mu.Lock()
	f.asked.remove(r)
	f.mu.Unlock()
	f.counters.count(len(r.into), err)
	r.done(err)
}
