package transport

import (
	"fmt"
	"runtime"

	"rankpool/mpicache/transport/mpi"
)

// flow is a series of MPI messages with one peer that begin, and are seen to finish, in order. Only
// its first unfinished message is in the array that is tested, so that polling costs one test per
// flow, not one per message.
type flow struct {
	peer, tag int
	receives  bool
	credit    *int // sends that may still begin, shared by flows to a peer; nil for receives
	queued    []message
	begun     []message // under way, oldest first
	requests  []mpi.Request
	place     int // of the first request in flows.requests, while one is under way
}

// flows drives all flows that have messages under way.
type flows struct {
	requests mpi.Requests
	active   []*flow // by place in requests
	sends    int     // messages queued or under way
	bulk     int     // messages of Puts and Takes under way
	scratch  [][]byte
	pins     runtime.Pinner // scratch memory's, forever
	done     []mpi.Done
	finished []*flow
	rest     []mpi.Done
}

// begin starts as many queued messages as the credit allows.
func (e *flows) begin(f *flow) {
	for len(f.queued) > 0 && (f.credit == nil || *f.credit > 0) {
		m := f.queued[0]
		f.queued = f.queued[1:]
		if f.credit != nil {
			*f.credit--
		}
		r, err := e.start(f, &m)
		e.adopt(f, m, r, err)
	}
}

// start begins one message.
func (e *flows) start(f *flow, m *message) (mpi.Request, error) {
	if m.pack == nil {
		m.part.pins.Pin(&m.buf[0]) // Does nothing for memory that is not Go's, such as the slab.
	} else {
		m.buf = e.takeScratch()[:m.bytes]
	}
	if f.receives {
		return mpi.Irecv(m.buf, f.peer, f.tag)
	}
	buf := m.buf[:0]
	for _, s := range m.pack {
		buf = append(buf, s...)
	}
	return mpi.Isend(m.buf, f.peer, f.tag)
}

// adopt adds a message in flight to the flow, or one that failed to start, which is a null request
// that finishes in its turn.
func (e *flows) adopt(f *flow, m message, r mpi.Request, err error) {
	if f.tag != controlTag {
		e.bulk++
	}
	if err != nil {
		m.part.fail(fmt.Errorf("transport: rank %d: %w", f.peer, err))
		if len(f.begun) == 0 {
			e.end(f, &m, mpi.Done{})
			return
		}
	}
	f.begun = append(f.begun, m)
	f.requests = append(f.requests, r)
	if len(f.begun) == 1 {
		f.place = e.requests.Len()
		e.requests.Append(r)
		e.active = append(e.active, f)
	}
}

// poll finishes what MPI has completed and reports whether there was anything; settled is called
// for each flow that advanced.
func (e *flows) poll(settled func(*flow)) bool {
	// An error of the call itself belongs to no message: none is found finished.
	done, _ := e.requests.Testsome(e.done[:0])
	e.done, e.finished = done, e.finished[:0]
	for _, d := range done {
		e.finished = append(e.finished, e.active[d.Place])
	}
	for i, f := range e.finished {
		e.finish(f, done[i])
		settled(f)
	}
	return len(done) > 0
}

// finish ends the flow's first message, and those after it that have finished too.
func (e *flows) finish(f *flow, first mpi.Done) {
	e.end(f, &f.begun[0], first)
	e.rest = mpi.Test(f.requests[1:], e.rest[:0])
	for i, d := range e.rest {
		e.end(f, &f.begun[1+i], d)
	}
	n := 1 + len(e.rest)
	f.begun, f.requests = f.begun[n:], f.requests[n:]
	if len(f.begun) > 0 {
		e.requests.Set(f.place, f.requests[0])
		return
	}
	f.begun, f.requests = nil, nil
	e.requests.Remove(f.place)
	last := len(e.active) - 1
	e.active[f.place] = e.active[last]
	e.active[f.place].place = f.place
	e.active[last] = nil
	e.active = e.active[:last]
}

// end handles the end of a message, and calls done after a transfer's last.
func (e *flows) end(f *flow, m *message, d mpi.Done) {
	if f.tag != controlTag {
		e.bulk--
	}
	if !f.receives {
		e.sends--
		*f.credit++
	}
	switch {
	case d.Err != nil:
		m.part.fail(fmt.Errorf("transport: rank %d: %w", f.peer, d.Err))
	case f.receives && d.Bytes != m.bytes:
		m.part.fail(
			fmt.Errorf("transport: %d bytes came from rank %d, %d were expected", d.Bytes, f.peer,
				m.bytes))
	case f.receives:
		rest := m.buf
		for _, s := range m.pack {
			rest = rest[copy(s, rest):]
		}
	}
	if m.pack != nil {
		e.scratch = append(e.scratch, m.buf[:packBytes])
	}
	m.part.end()
}

// cancel cancels pending receives, as MPI_Finalize requires. Their memory stays pinned.
func (e *flows) cancel() {
	for _, f := range e.active {
		for _, r := range f.requests {
			if f.receives {
				_ = mpi.Cancel(r) // Nobody waits for them any more.
			}
		}
	}
}

// takeScratch returns packBytes of memory that does not move.
func (e *flows) takeScratch() []byte {
	n := len(e.scratch)
	if n == 0 {
		b := make([]byte, packBytes)
		e.pins.Pin(&b[0])
		return b
	}
	b := e.scratch[n-1]
	e.scratch = e.scratch[:n-1]
	return b
}

// fail keeps the transfer's first error.
func (t *transfer) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// end counts a message that has finished.
func (t *transfer) end() {
	if t.left--; t.left == 0 {
		t.pins.Unpin()
		t.done(t.err)
	}
}
