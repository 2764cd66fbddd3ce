package tier

import (
	"fmt"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler/draw"
)

// kind is the kind of a request.
type kind int

const (
	reading kind = iota
	writing
)

// timeout bounds a request, from when a worker starts it.
func (k kind) timeout() time.Duration {
	if k == reading {
		return readTimeout
	}
	return writeTimeout
}

// request is a Store or a Recall in progress.
type request struct {
	kind   kind
	id     draw.SampleID
	record *record
	need   uint64

	mu     sync.Mutex
	memory []byte
	over   bool // done was called: the memory no longer belongs to the request
	done   func(error)
}

// end calls done, unless it was called already, and reports whether it did. Before that, while the
// memory still belongs to the request, it copies what was read into it.
func (q *request) end(err error, read []byte) bool {
	q.mu.Lock()
	if q.over {
		q.mu.Unlock()
		return false
	}
	q.over = true
	if err == nil && q.kind == reading {
		copy(q.memory, read)
	}
	q.mu.Unlock()
	q.done(err)
	return true
}

// copyOut copies a sample that is to be written from the request's memory. It returns false if the
// request is over.
func (q *request) copyOut(into []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.over {
		copy(into, q.memory)
	}
	return !q.over
}

// work performs requests of a kind until the end. A worker that is stuck in a request is replaced
// by another one, and ends when the file releases it. So a file that does not answer is detected
// after a few time-outs, which bounds the number of workers.
func (d *Disk) work(k kind) {
	var buffer []byte
	for {
		q := d.take(k)
		if q == nil {
			return
		}
		if size := len(q.memory); size > cap(buffer) {
			buffer = make([]byte, size)
		}
		if !d.run(q, buffer[:len(q.memory)]) {
			return
		}
	}
}

// take waits for a request; nil means the end.
func (d *Disk) take(k kind) *request {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queue[k]) == 0 && !d.ended {
		d.wake[k].Wait()
	}
	if d.ended {
		return nil
	}
	q := d.queue[k][0]
	d.queue[k][0] = nil
	d.queue[k] = d.queue[k][1:]
	d.running[q] = struct{}{}
	return q
}

// run performs a request through a buffer, so that nothing reads or writes the memory of a request
// that is over. It reports whether the worker is to continue.
func (d *Disk) run(q *request, buffer []byte) bool {
	stop := d.opt.After(q.kind.timeout(), func() { d.giveUp(q) })
	var err error
	if q.kind == writing {
		err = d.write(q, buffer)
	} else {
		err = d.read(q.record, buffer)
	}
	stop()
	d.release(q, err)
	return q.end(err, buffer)
}

// giveUp ends a request that takes too long, and starts another worker.
func (d *Disk) giveUp(q *request) {
	if !q.end(errSlow, nil) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.kind == writing {
		d.forget(q)
	}
	if !d.ended {
		d.workers.Go(func() { d.work(q.kind) })
	}
}

// release ends a request's use of its record.
func (d *Disk) release(q *request, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.running, q)
	q.record.users--
	if q.kind == writing && err != nil {
		d.forget(q)
	}
	q.record.whole = q.record.whole || q.kind == writing && err == nil
	d.giveBack(q.record)
}

// forget drops the sample that a request was to write. d.mu is held.
func (d *Disk) forget(q *request) {
	if d.records[q.id] == q.record {
		d.drop(q.id)
	}
}

func (d *Disk) write(q *request, buffer []byte) error {
	if !q.copyOut(buffer) {
		return errEnded
	}
	q.record.sum = xxh3.Hash(buffer)
	return d.each(q.record, buffer, d.file.WriteAt)
}

// read reads a sample, and verifies it.
func (d *Disk) read(r *record, buffer []byte) error {
	if err := d.each(r, buffer, d.file.ReadAt); err != nil {
		return err
	}
	if xxh3.Hash(buffer) != r.sum {
		return errChanged
	}
	return nil
}

// each reads or writes a sample piece by piece.
func (d *Disk) each(r *record, buffer []byte, transfer func([]byte, int64) (int, error)) error {
	for _, e := range r.extents {
		off := int64(e.start) * d.opt.BlockBytes
		piece := buffer[:min(int64(len(buffer)), int64(e.n)*d.opt.BlockBytes)]
		if _, err := transfer(piece, off); err != nil {
			return fmt.Errorf("tier: %w", err)
		}
		d.file.Forget(off, int64(len(piece)))
		buffer = buffer[len(piece):]
	}
	return nil
}
