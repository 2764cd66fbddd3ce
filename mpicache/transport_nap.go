package mpicache

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	spinTime     = 30 * time.Microsecond  // polling without a nap after the last event: a round trip between nodes
	shortestNap  = 20 * time.Microsecond  // below this the system call dominates
	longestNap   = time.Millisecond       // an idle rank then takes 1 to 2 % of a core
	bulkNap      = 100 * time.Microsecond // longest nap while bytes are under way, which need polling to move over TCP
	bulkPatience = 100 * time.Millisecond // after this, bytes that do not come no longer shorten naps
	wakePolls    = 8                      // polls after a nap: Open MPI 4.1 looks at its sockets every 8th time
)

// napTime is how long to sleep when nothing has happened for idle: an eighth of it, so that a nap makes nothing wait much longer than
// it has waited already; 0 means to poll on.
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

// napper lets one goroutine sleep for less than a millisecond, and others wake it. Go's timers are no use for that: an idle
// process's are rounded up to a millisecond (epoll_wait).
type napper struct {
	fd     int // eventfd
	asleep atomic.Bool
}

func newNapper() (*napper, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("mpicache: eventfd: %w", err)
	}
	return &napper{fd: fd}, nil
}

// nap sleeps for d, or until wake, or not at all when ready says that there is work. It may return early.
func (n *napper) nap(d time.Duration, ready func() bool) {
	n.asleep.Store(true)
	if !ready() {
		timeout := unix.NsecToTimespec(d.Nanoseconds())
		_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(n.fd), Events: unix.POLLIN}}, &timeout, nil) // An error is an early return.
	}
	if !n.asleep.Swap(false) { // Woken: take the token.
		var token [8]byte
		_, _ = unix.Read(n.fd, token[:])
	}
}

// wake ends a nap. Work must have been made visible to ready before.
func (n *napper) wake() {
	if n.asleep.Swap(false) {
		_, _ = unix.Write(n.fd, binary.NativeEndian.AppendUint64(nil, 1))
	}
}
