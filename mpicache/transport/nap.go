package transport

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// spinTime is how long to poll without a nap after the last event: some round trips between
	// nodes.
	spinTime    = 50 * time.Microsecond
	shortestNap = 20 * time.Microsecond // below this the system call dominates
	// longestNap is used after 128 ms without an event; a wake takes 30 to 60 µs of a core (Go
	// 1.26, a virtual machine).
	longestNap = 16 * time.Millisecond
	timerNap   = time.Millisecond // from here on a timer of Go's is exact enough
	// bulkNap is the longest nap while bytes are in flight, which need polling to move over TCP.
	bulkNap = 100 * time.Microsecond
	// bulkPatience is how long bytes in flight shorten naps while nothing happens.
	bulkPatience = 100 * time.Millisecond
	// wakePolls is how often to poll after a nap: Open MPI 4.1 polls its sockets every 8th time.
	wakePolls = 8
)

// napTime returns how long to sleep after nothing has happened for idle: an eighth of it, so that a
// nap delays nothing much longer than it has waited already; 0 means to keep polling.
func napTime(idle time.Duration, bulk bool) time.Duration {
	if idle < spinTime {
		return 0
	}
	longest := longestNap
	if bulk && idle < bulkPatience {
		longest = bulkNap
	}
	return min(max(idle/8, shortestNap), longest)
}

// napper lets one goroutine sleep for a time, and others wake it.
//
// Short naps block a thread in ppoll, since Go's own timers are rounded up to a millisecond in an
// idle process (epoll_wait). Long ones use such a timer: a thread that blocks every millisecond
// keeps the runtime's monitor polling, and a nap then costs 58 µs of a core instead of 34.
type napper struct {
	state atomic.Int32 // awake, inPoll or inTimer
	fd    int          // eventfd that ends a ppoll
	token chan struct{}
	timer *time.Timer
}

// States of a napper.
const (
	awake int32 = iota
	inPoll
	inTimer
)

func newNapper() (*napper, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("transport: eventfd: %w", err)
	}
	timer := time.NewTimer(0)
	timer.Stop()
	return &napper{fd: fd, token: make(chan struct{}, 1), timer: timer}, nil
}

// nap sleeps for d, or until wake, or not at all if ready reports work. It may return early.
func (n *napper) nap(d time.Duration, ready func() bool) {
	state := inPoll
	if d >= timerNap {
		state = inTimer
	}
	n.state.Store(state)
	switch {
	case ready():
	case state == inPoll:
		timeout := unix.NsecToTimespec(d.Nanoseconds())
		// An error is an early return.
		_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(n.fd), Events: unix.POLLIN}}, &timeout, nil)
	default:
		n.timer.Reset(d)
		select {
		case <-n.token:
		case <-n.timer.C:
		}
	}
	// Woken: clear the eventfd. A leftover token shortens a later nap.
	if n.state.Swap(awake) == awake && state == inPoll {
		var count [8]byte
		_, _ = unix.Read(n.fd, count[:])
	}
}

// wake ends a nap. Work must have been made visible to ready before.
func (n *napper) wake() {
	switch n.state.Swap(awake) {
	case inPoll:
		_, _ = unix.Write(n.fd, binary.NativeEndian.AppendUint64(nil, 1))
	case inTimer:
		select {
		case n.token <- struct{}{}:
		default:
		}
	}
}
