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
// slices. On Linux 6.18 a thread that computes kept its processor for its whole slice, some 1.4 ms
// on 2 processors, when a thread that answers a GET was woken. Kernels before 6.12 ignore the
// length.
func (realWorld) giveWay() {
	runtime.LockOSThread()
	if attr, err := unix.SchedGetAttr(0, 0); err == nil {
		attr.Runtime = uint64(shortestSlice)
		_ = unix.SchedSetAttr(0, attr, 0) // without it GETs take longer: a sandbox may forbid it
	}
}
