package outside

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestGiveWay checks that the goroutine's thread has the shortest time slice, if the kernel has
// slices of different lengths.
func TestGiveWay(t *testing.T) {
	runtimes := make(chan uint64)
	go func() {
		Real{}.GiveWay()
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Error(err)
			attr = &unix.SchedAttr{}
		}
		runtimes <- attr.Runtime
	}()
	if got := <-runtimes; got != uint64(shortestSlice) && got != 0 {
		t.Errorf("the slice is %d ns, want %v", got, shortestSlice)
	}
}
