package stage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestLimits stages with limits: the job takes as long as they imply.
func TestLimits(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		for _, test := range []struct{ bytes, opens, least, most float64 }{
			{bytes: 1000, least: 30, most: 36}, // 35,000 bytes, of which a frame may be read at once
			{opens: 2, least: 2, most: 3},
			{bytes: 1000, opens: 2, least: 30, most: 39},
			{},
		} {
			t.Run(fmt.Sprintf("%d ranks, %v", ranks, test), func(t *testing.T) {
				src, base := smallTree(t), t.TempDir()
				took := stagedIn(t, ranks, src, base, test.bytes, test.opens)
				if took < test.least-float64(5*ranks) && test.bytes > 0 || took < test.least &&
					test.bytes == 0 || took > test.most {
					t.Errorf("it took %v s, want %v to %v", took, test.least, test.most)
				}
			})
		}
	}
}

// stagedIn stages a replica to each rank, and returns the seconds that it took by a clock that
// advances when all wait.
func stagedIn(t *testing.T, ranks int, src, base string, bytes, opens float64) (took float64) {
	synctest.Test(t, func(t *testing.T) {
		group, began := newMemory(ranks), time.Now()
		_, errs := stageOver(group, src, base, func(_ int, o *Options) {
			o.Mode, o.MaxBytesPerSecond, o.MaxOpensPerSecond, o.Readers = Replicate, bytes, opens, 1
			o.PeerTicks = 1000
		})
		took = time.Since(began).Seconds()
		mustDo(t, errors.Join(errs...))
		for _, m := range group {
			mustDo(t, m.Close())
		}
	})
	return took
}

// TestLimitOfTheOneThatReads checks that the only rank that lacks something gets all of the limit.
func TestLimitOfTheOneThatReads(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	stagedIn(t, 4, src, base, 0, 0)
	mustDo(t, os.Remove(filepath.Join(base, "2", "large")))
	if took := stagedIn(t, 4, src, base, 1000, 0); took < 20 || took > 25 {
		t.Errorf("it took %v s to read 25,000 bytes at 1,000 a second", took)
	}
}
