package keep

import (
	"errors"
	"sync"
	"time"
)

const (
	// readers and writers are as many as package tier has, for the same reasons.
	readers, writers = 8, 2
	// queuedBytes is how many bytes may wait to be written; samples beyond that are not written.
	queuedBytes = 256 << 20
	// readTimeout is as long as the time-out for another rank: after it, the sample is read from
	// storage.
	readTimeout = 2 * time.Second
)

var (
	errEnded = errors.New("keep: the copies were abandoned")
	errSlow  = errors.New("keep: the disk does not answer in time")
)

type kind int

const (
	reading kind = iota
	writing
)

// A request reads a sample into memory, or writes a copy of it.
type request struct {
	kind kind
	slot int

	mu     sync.Mutex
	memory []byte
	over   bool // the memory no longer belongs to the request
	done   func(error)
}

// finish ends the request, and reports whether it was still open: then the caller calls done. While
// the memory still belongs to the request, it copies what was read into it.
func (q *request) finish(err error, read []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return false
	}
	q.over = true
	if err == nil && q.kind == reading {
		copy(q.memory, read)
	}
	return true
}

// workers perform requests, in the order in which they came. A worker that is stuck in a read is
// replaced, and ends when the disk releases it.
type workers struct {
	do    [2]func(slot int, buffer []byte) error // by kind
	judge func(error)                            // is called with the result of each request

	mu      sync.Mutex
	wake    [2]sync.Cond
	queue   [2][]*request
	bytes   int64 // of what waits to be written
	writing int   // requests under way
	refuses bool
	idle    chan struct{} // closed when the workers are ending and have written all
}

func newWorkers(read, write func(slot int, buffer []byte) error, judge func(error)) *workers {
	w := &workers{judge: judge, idle: make(chan struct{})}
	w.do = [2]func(int, []byte) error{read, write}
	for k, n := range [2]int{reading: readers, writing: writers} {
		w.wake[k].L = &w.mu
		for range n {
			go w.work(kind(k))
		}
	}
	return w
}

// add passes a request to the workers. It returns false, and does nothing, if they accept no more.
func (w *workers) add(q *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuses || q.kind == writing && w.bytes+int64(len(q.memory)) > queuedBytes && w.bytes > 0 {
		return false
	}
	if q.kind == writing {
		w.bytes += int64(len(q.memory))
	}
	w.queue[q.kind] = append(w.queue[q.kind], q)
	w.wake[q.kind].Signal()
	return true
}

// refuse makes the workers accept no more requests. Reads that wait end with errEnded; what waits
// to be written is still written.
func (w *workers) refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuses {
		return
	}
	w.refuses = true
	waiting := w.queue[reading]
	w.queue[reading] = nil
	go func() {
		for _, q := range waiting {
			if q.finish(errEnded, nil) {
				q.done(errEnded)
			}
		}
	}()
	for k := range w.wake {
		w.wake[k].Broadcast()
	}
	w.checkIdle()
}

// close makes the workers accept no more requests, and waits at most patience until all is written.
func (w *workers) close(patience time.Duration) {
	w.refuse()
	select {
	case <-w.idle:
	case <-time.After(patience):
	}
}

// checkIdle closes idle if the workers are ending and have written all. refuse calls it, and then
// each write that ends. w.mu is held.
func (w *workers) checkIdle() {
	if w.refuses && len(w.queue[writing]) == 0 && w.writing == 0 {
		close(w.idle)
	}
}

// take waits for a request; nil means the end.
func (w *workers) take(k kind) *request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue[k]) == 0 && !w.refuses {
		w.wake[k].Wait()
	}
	if len(w.queue[k]) == 0 {
		return nil
	}
	q := w.queue[k][0]
	w.queue[k][0] = nil
	w.queue[k] = w.queue[k][1:]
	if k == writing {
		w.bytes -= int64(len(q.memory))
		w.writing++
	}
	return q
}

// wrote notes the end of a write.
func (w *workers) wrote() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing--
	w.checkIdle()
}

// work performs requests of a kind until the end.
func (w *workers) work(k kind) {
	var buffer []byte
	for q := w.take(k); q != nil; q = w.take(k) {
		if k == writing {
			w.judge(w.do[k](q.slot, q.memory))
			w.wrote()
			continue
		}
		if size := len(q.memory); size > cap(buffer) {
			buffer = make([]byte, size)
		}
		late := time.AfterFunc(readTimeout, func() {
			if w.end(q, errSlow, nil) {
				go w.work(k)
			}
		})
		err := w.do[k](q.slot, buffer[:len(q.memory)])
		late.Stop()
		if !w.end(q, err, buffer) {
			return // another worker has taken this one's place
		}
	}
}

// end ends a request, and reports whether it was still open. It judges the result first, so that
// whoever asks again after done sees the effect.
func (w *workers) end(q *request, err error, read []byte) bool {
	if !q.finish(err, read) {
		return false
	}
	w.judge(err)
	q.done(err)
	return true
}
