package store

import (
	"runtime"
	"sync/atomic"
	"testing"

	"rankpool/scheduler/draw"
)

// unwritten is a folder of packages to which none may be written.
type unwritten struct {
	Tier
	t *testing.T
}

func (u unwritten) Store(draw.SampleID, []byte, func(error)) bool {
	u.t.Error("a package is written although a sample was not read")
	return true
}

// TestPackageLacksASample makes a package's last two reads end at once, one of them with an error.
func TestPackageLacksASample(t *testing.T) {
	for range 50000 {
		s := &Store{data: &DataSet{Packages: unwritten{t: t}}, closed: true}
		w := packageWrite{store: s, missing: 2}
		s.reads.Add(1)
		var ready atomic.Int32
		arrive := func(err error) {
			for ready.Add(1); ready.Load() < 2; {
				runtime.Gosched()
			}
			w.arrived(err)
		}
		done := make(chan struct{})
		go func() {
			arrive(nil)
			close(done)
		}()
		arrive(errNoRoom)
		<-done
		if t.Failed() {
			return
		}
	}
}
