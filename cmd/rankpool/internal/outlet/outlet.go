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

// An Outlet hands lines on to a writer that may not take them, as a pipe that nobody reads or a hung file system:
// whoever writes to the outlet never waits. Lines that find no room are left out and counted. All its methods may be
// called concurrently.
type Outlet struct {
	to    io.Writer
	bound int // of bytes that wait; what is being written comes on top of it, and is bounded alike
	// told hears from the outlet's goroutine how many lines were left out when lines get through
	// again, and of the first error of several in a row. nil writes a line of them behind the others.
	told func(lost int64, err error)

	begin sync.Once
	wake  chan struct{}
	ended chan struct{} // closed when nothing is written any more

	mu      sync.Mutex
	waiting []byte
	lost    int64
	over    bool
}

const (
	// StderrBytes bounds the messages that wait: some ten thousand.
	StderrBytes = 1 << 20
	// Patience is how long the end of a process waits for stderr to take its last messages.
	Patience = time.Second
)

// Stderr is where run and the ranks write their messages: a launcher that waits for stderr would start no dead cache
// again, and a rank would serve nobody.
var Stderr = New(os.Stderr, StderrBytes, nil)

// New returns an outlet to a writer, in which at most bound bytes wait.
func New(to io.Writer, bound int, told func(lost int64, err error)) *Outlet {
	return &Outlet{to: to, bound: bound, told: told, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Target returns the writer that lines are handed on to.
func (o *Outlet) Target() io.Writer { return o.to }

// Write takes one line or several, whole ones.
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
		lines, lost, over := o.take()
		if len(lines) > 0 {
			_, err := o.to.Write(lines)
			switch {
			case err != nil:
				o.miss(lost + int64(bytes.Count(lines, []byte("\n"))))
				if !failing {
					o.tell(0, err)
				}
			case lost > 0:
				o.tell(lost, nil)
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

// take returns the lines that wait, how many were left out so far, and whether no more will come.
func (o *Outlet) take() (lines []byte, lost int64, over bool) {
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

func (o *Outlet) tell(lost int64, err error) {
	switch {
	case o.told != nil:
		o.told(lost, err)
	case err == nil:
		fmt.Fprintf(o.to, "rankpool: %d messages were left out here: nobody took them\n", lost)
	}
}

// Close has what waits written, for at most patience, and reports whether that was done. Nothing is taken any more.
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
