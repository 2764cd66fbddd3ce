// Package outlet writes lines to files that may block or fail, and never makes their writers wait.
package outlet

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// An Outlet passes lines to a writer that may block, such as a pipe without a reader or a hung file
// system; writing to the Outlet never blocks. Lines that do not fit in its buffer are dropped and
// counted. Its methods may be called concurrently.
type Outlet struct {
	to    io.Writer
	bound int // of buffered bytes; those being written come on top, and are bounded as well
	// dropped, which is called from the outlet's goroutine, receives how many lines were dropped
	// when lines get through again, and the first of several errors in a row. If it is nil, the
	// outlet writes a line about them.
	dropped func(lost int64, err error)

	begin sync.Once
	wake  chan struct{}
	ended chan struct{} // closed after the last write

	mu      sync.Mutex
	waiting []byte
	lost    int64
	over    bool
}

const (
	// StderrBytes bounds the messages that wait: some ten thousand.
	StderrBytes = 1 << 20
	// Patience is how long a process that ends waits for stderr to accept its last messages.
	Patience = time.Second
)

// Stderr is where run and the ranks write their messages: a launcher that blocks on stderr would
// not restart a dead cache, and a rank would serve no requests.
var Stderr = New(os.Stderr, StderrBytes, nil)

// New returns an outlet to a writer that buffers at most bound bytes.
func New(to io.Writer, bound int, dropped func(lost int64, err error)) *Outlet {
	return &Outlet{
		to: to, bound: bound, dropped: dropped, wake: make(chan struct{}, 1),
		ended: make(chan struct{}),
	}
}

// Target returns the writer that lines are written to.
func (o *Outlet) Target() io.Writer { return o.to }

// Write writes one or more whole lines.
func (o *Outlet) Write(lines []byte) (int, error) {
	o.begin.Do(func() { go o.run() })
	o.mu.Lock()
	if o.over || len(o.waiting)+len(lines) > o.bound {
		o.lost += int64(bytes.Count(lines, []byte("\n")))
	} else {
		o.waiting = append(o.waiting, lines...)
	}
	o.mu.Unlock()
	o.kick()
	return len(lines), nil
}

func (o *Outlet) kick() {
	select {
	case o.wake <- struct{}{}:
	default: // it has been woken
	}
}

// run is the life of the outlet's goroutine.
func (o *Outlet) run() {
	defer close(o.ended)
	failing := false
	for {
		lines, lost, over := o.next()
		if len(lines) > 0 {
			_, err := o.to.Write(lines)
			switch {
			case err != nil:
				o.miss(lost + int64(bytes.Count(lines, []byte("\n"))))
				if !failing {
					o.report(0, err)
				}
			case lost > 0:
				o.report(lost, nil)
			}
			failing = err != nil
			continue
		}
		if over {
			return
		}
		o.miss(lost)
		<-o.wake
	}
}

// next returns the buffered lines, how many were dropped since the last call, and whether the
// outlet is closed.
func (o *Outlet) next() (lines []byte, lost int64, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines, lost, over = o.waiting, o.lost, o.over
	o.waiting, o.lost = nil, 0
	return lines, lost, over
}

func (o *Outlet) miss(lines int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost += lines
}

func (o *Outlet) report(lost int64, err error) {
	switch {
	case o.dropped != nil:
		o.dropped(lost, err)
	case err == nil:
		fmt.Fprintf(o.to, "rankpool: %d messages were dropped here: the reader was too slow\n",
			lost)
	}
}

// Close writes the buffered lines, for at most patience, and reports whether that was possible.
// Later writes are dropped.
func (o *Outlet) Close(patience time.Duration) bool {
	o.begin.Do(func() { close(o.ended) })
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
	o.kick()
	select {
	case <-o.ended:
		return true
	case <-time.After(patience):
		return false
	}
}
