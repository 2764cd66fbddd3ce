package mpicache

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// outside is what a node needs of the world besides its transport, storage and files. The
// simulation of whole jobs has another one, in virtual time.
type outside interface {
	now() time.Time
	// beside runs f beside the caller, which may hold a lock. Those with the same key are begun in
	// order; with nil, in any.
	beside(key any, what string, f func())
	// giveWay lets others run while the function that beside runs computes for long.
	giveWay()
}

// realWorld has clocks and goroutines.
type realWorld struct{}

func (realWorld) now() time.Time                   { return time.Now() }
func (realWorld) beside(_ any, _ string, f func()) { go f() }

// shortestSlice is the shortest time slice that Linux gives a thread.
const shortestSlice = 100 * time.Microsecond

// giveWay gives the goroutine a thread of its own, which ends with it, and that thread short time
// slices. Since Linux 6.12 a thread that computes keeps its processor for its slice, 1.4 ms on 2
// processors, when one that answers a GET is woken; so each GET that meets a save would take that
// long. Older kernels ignore the length, and change threads when one is woken.
func (realWorld) giveWay() {
	runtime.LockOSThread()
	if attr, err := unix.SchedGetAttr(0, 0); err == nil {
		attr.Runtime = uint64(shortestSlice)
		_ = unix.SchedSetAttr(0, attr, 0) // a sandbox may forbid it
	}
}
