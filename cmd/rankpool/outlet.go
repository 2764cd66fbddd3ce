package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// An outlet hands lines on to a writer that may not take them, as a pipe that nobody reads or a hung file system:
// whoever writes to the outlet never waits. Lines that find no room are left out and counted. All its methods may be
// called concurrently.
type outlet struct {
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
	// stderrBytes bounds the messages that wait: some ten thousand.
	stderrBytes = 1 << 20
	// stderrPatience is how long the end of a process waits for stderr to take its last messages.
	stderrPatience = time.Second
)

// stderr is where run and the ranks write their messages: a launcher that waits for stderr would start no dead cache
// again, and a rank would serve nobody.
var stderr = newOutlet(os.Stderr, stderrBytes, nil)

func newOutlet(to io.Writer, bound int, told func(lost int64, err error)) *outlet {
	return &outlet{to: to, bound: bound, told: told, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Write takes one line or several, whole ones.
func (o *outlet) Write(lines []byte) (int, error) {
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

func (o *outlet) kick() {
	select {
	case o.wake <- struct{}{}:
	default: // it has been woken
	}
}

// run is the life of the outlet's goroutine.
func (o *outlet) run() {
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
func (o *outlet) take() (lines []byte, lost int64, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines, lost, over = o.waiting, o.lost, o.over
	o.waiting, o.lost = nil, 0
	return lines, lost, over
}

func (o *outlet) miss(lines int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost += lines
}

func (o *outlet) tell(lost int64, err error) {
	switch {
	case o.told != nil:
		o.told(lost, err)
	case err == nil:
		fmt.Fprintf(o.to, "rankpool: %d messages were left out here: nobody took them\n", lost)
	}
}

// close has what waits written, for at most patience, and reports whether that was done. Nothing is taken any more.
func (o *outlet) close(patience time.Duration) bool {
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
