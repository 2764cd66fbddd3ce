package tier

import (
	"errors"
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// readers is enough to keep a node-local NVMe device busy with samples of 100 KB: it has some 100
	// µs of latency and 3 to 7 GB/s.
	readers = 8
	// writers are fewer, so that writes do not delay reads, which somebody waits for.
	writers = 2
	// readTimeout is as long as the timeout for another rank (--tune peer-timeout): after it, the
	// sample is read from storage.
	readTimeout = 2 * time.Second
	// writeTimeout is longer: a device that collects garbage stalls writes for a second or more, and
	// training does not wait for writes.
	writeTimeout = 10 * time.Second
)

// The errors of requests that Workers end by themselves.
var (
	ErrEnded = errors.New("tier: abandoned after too many failures")
	ErrSlow  = errors.New("tier: the disk does not answer in time")
)

// A Request reads a sample into memory, or writes one from there.
type Request struct {
	Write  bool
	Need   uint64                    // least first
	Memory []byte                    // belongs to the request until Done is called
	Do     func(buffer []byte) error // reads into the buffer, or writes it; it may hang
	Done   func(error)               // is called once, on another goroutine than Add

	mu   sync.Mutex
	over bool // Done was called
}

// end calls Done, unless it was called already, and reports whether it did. Before that, while the
// memory still belongs to the request, it copies what was read into it.
func (q *Request) end(err error, read []byte) bool {
	q.mu.Lock()
	if q.over {
		q.mu.Unlock()
		return false
	}
	q.over = true
	if err == nil && !q.Write {
		copy(q.Memory, read)
	}
	q.mu.Unlock()
	q.Done(err)
	return true
}

// copyOut copies what is to be written from the request's memory. It returns false if the request
// is over.
func (q *Request) copyOut(into []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.over {
		copy(into, q.Memory)
	}
	return !q.over
}

// Workers perform requests of one disk, each through a buffer, so that nothing reads or writes the
// memory of a request that is over. A worker that is stuck in a request is replaced by another one,
// and ends when the disk releases it. So a disk that does not answer is detected after a few
// time-outs, which bounds the number of workers.
type Workers struct {
	full  func(writes int, bytes int64) bool
	after func(d time.Duration, f func()) (stop func() bool)
	all   sync.WaitGroup

	mu      sync.Mutex
	wake    [2]sync.Cond // reads, writes
	queue   [2][]*Request
	running map[*Request]struct{}
	bytes   int64 // that wait to be written
	closed  bool
	idle    chan struct{} // closed when all is written and nothing more will be
}

// NewWorkers starts workers. full reports whether no more may wait to be written than now; after
// calls f after d, unless stop is called before.
func NewWorkers(full func(writes int, bytes int64) bool,
	after func(d time.Duration, f func()) (stop func() bool),
) *Workers {
	w := &Workers{
		full: full, after: after, running: map[*Request]struct{}{}, idle: make(chan struct{}),
	}
	for kind, n := range []int{readers, writers} {
		w.wake[kind].L = &w.mu
		for range n {
			w.all.Go(func() { w.work(kind) })
		}
	}
	return w
}

// kind is an index into the queues.
func (q *Request) kind() int {
	if q.Write {
		return 1
	}
	return 0
}

// Add passes a request to the workers. It returns false, and does nothing, if they accept no more.
func (w *Workers) Add(q *Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || q.Write && w.full(len(w.queue[1]), w.bytes) {
		return false
	}
	kind := q.kind()
	if q.Write {
		w.bytes += int64(len(q.Memory))
	}
	queue := w.queue[kind]
	at := sort.Search(len(queue), func(i int) bool { return queue[i].Need > q.Need })
	w.queue[kind] = slices.Insert(queue, at, q)
	w.wake[kind].Signal()
	return true
}

// Close makes the workers accept no more requests. What waits to be read ends with ErrEnded; so
// does what is not written within patience.
func (w *Workers) Close(patience time.Duration) {
	w.mu.Lock()
	w.closed = true
	over := w.queue[0]
	w.queue[0] = nil
	for kind := range w.wake {
		w.wake[kind].Broadcast()
	}
	w.checkIdle()
	w.mu.Unlock()
	if patience > 0 {
		select {
		case <-w.idle:
		case <-time.After(patience):
		}
	}
	w.mu.Lock()
	over = append(over, w.queue[1]...)
	w.queue[1] = nil
	for q := range w.running {
		over = append(over, q)
	}
	w.mu.Unlock()
	go func() {
		for _, q := range over {
			q.end(ErrEnded, nil)
		}
	}()
}

// checkIdle closes idle if nothing is being written and nothing will be. w.mu is held.
func (w *Workers) checkIdle() {
	if !w.closed || len(w.queue[1]) > 0 {
		return
	}
	for q := range w.running {
		if q.Write {
			return
		}
	}
	select {
	case <-w.idle:
	default:
		close(w.idle)
	}
}

// work performs requests of a kind until the end.
func (w *Workers) work(kind int) {
	var buffer []byte
	for q := w.take(kind); q != nil; q = w.take(kind) {
		if size := len(q.Memory); size > cap(buffer) {
			buffer = make([]byte, size)
		}
		if !w.run(q, buffer[:len(q.Memory)]) {
			return
		}
	}
}

// take waits for a request; nil means the end.
func (w *Workers) take(kind int) *Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue[kind]) == 0 && !w.closed {
		w.wake[kind].Wait()
	}
	if len(w.queue[kind]) == 0 {
		return nil
	}
	q := w.queue[kind][0]
	w.queue[kind][0] = nil
	w.queue[kind] = w.queue[kind][1:]
	if q.Write {
		w.bytes -= int64(len(q.Memory))
	}
	w.running[q] = struct{}{}
	return q
}

// run performs a request, and reports whether the worker is to continue.
func (w *Workers) run(q *Request, buffer []byte) bool {
	timeout := readTimeout
	if q.Write {
		timeout = writeTimeout
	}
	stop := w.after(timeout, func() {
		if q.end(ErrSlow, nil) {
			w.all.Go(func() { w.work(q.kind()) })
		}
	})
	err := ErrEnded
	if !q.Write || q.copyOut(buffer) {
		err = q.Do(buffer)
	}
	stop()
	w.mu.Lock()
	delete(w.running, q)
	w.mu.Unlock()
	open := q.end(err, buffer)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkIdle()
	return open
}
