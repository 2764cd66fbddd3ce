// Package outside is what a rank needs from the world besides its transport, storage and files: a
// clock and goroutines.
package outside

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// World is where a rank runs. The simulation of whole jobs has its own, in virtual time.
type World interface {
	Now() time.Time
	// Beside runs f concurrently with the caller, which may hold a lock. The simulation starts
	// functions with the same key, if it is not nil, in order; goroutines start in any order.
	Beside(key any, what string, f func())
	// GiveWay lets others run while a function that Beside runs computes for a long time.
	GiveWay()
}

// Real has the machine's clock, and goroutines.
type Real struct{}

// Now implements World.
func (Real) Now() time.Time { return time.Now() }

// Beside implements World.
func (Real) Beside(_ any, _ string, f func()) { go f() }

// shortestSlice is the shortest time slice that Linux gives a thread.
const shortestSlice = 100 * time.Microsecond

// GiveWay gives the goroutine a thread of its own, which ends with it, and that thread short time
// slices. On Linux 6.18 a thread that computes kept its processor for its whole slice, some 1.4 ms
// on 2 processors, when a thread that answers a GET was woken. Kernels before 6.12 ignore the
// length.
func (Real) GiveWay() {
	runtime.LockOSThread()
	if attr, err := unix.SchedGetAttr(0, 0); err == nil {
		attr.Runtime = uint64(shortestSlice)
		_ = unix.SchedSetAttr(0, attr, 0) // without it GETs take longer: a sandbox may forbid it
	}
}
