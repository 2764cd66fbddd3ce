package stage

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A clock advances when somebody waits for it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pause(_ context.Context, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// TestLimits stages random trees with limits, each rank with its own clock. No rank reads more than
// its part of the job's limits allows; and the job takes as long as its limits imply, so it uses
// all of them.
func TestLimits(t *testing.T) {
	checkTrees(t, func(t *rapid.T, dir, src string) {
		n := rapid.IntRange(1, 4).Draw(t, "ranks")
		rate := rapid.SampledFrom([]float64{0, 1e4, 1e6}).Draw(t, "bytes a second")
		opens := rapid.SampledFrom([]float64{0, 5, 100}).Draw(t, "opens a second")
		mode := rapid.SampledFrom([]Mode{Partition, Replicate}).Draw(t, "mode")
		clocks, sources := make([]*clock, n), make([]*faulty, n)
		reports, errs := stageAll(n, src, dir, func(rank int, o *Options) {
			clocks[rank], sources[rank] = &clock{at: time.Unix(1, 0)}, newFaulty(nothing)
			o.Mode, o.MaxBytesPerSecond, o.MaxOpensPerSecond = mode, rate, opens
			// one waits at a time
			o.now, o.pause, o.Readers = clocks[rank].now, clocks[rank].pause, 1
			o.sourceFault = sources[rank].fault
		})
		r := reports[0]
		mustDo(t, errs[0])
		allOpens, longest := 0, 0.0
		for rank := range n {
			for _, k := range sources[rank].opens {
				allOpens += k
			}
			longest = max(longest, clocks[rank].now().Sub(time.Unix(1, 0)).Seconds())
		}
		if r.StorageBytes == 0 {
			return
		}
		// A rank's part of the limit is its part of the bytes, so all ranks finish at the same time:
		// after what the limit implies, less a burst of 0.1 s and less the last chunk.
		atLeast, atMost := 0.0, 0.2
		if rate > 0 {
			atLeast, atMost = float64(r.StorageBytes-int64(n)*4096)/rate-0.1,
				atMost+float64(r.TotalBytes)/rate
		}
		if opens > 0 {
			atLeast, atMost = max(atLeast, float64(allOpens-n)/opens-0.1), atMost+float64(allOpens)/opens
		}
		if longest < atLeast-1e-6 || longest > atMost {
			t.Fatalf("%d bytes and %d opens took %v s, want between %v and %v", r.StorageBytes, allOpens,
				longest, atLeast, atMost)
		}
	})
}

// TestLimitOfTheOneThatReads checks that the only rank that lacks something gets all of the limit.
func TestLimitOfTheOneThatReads(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	_, errs := stageAll(4, src, base, func(_ int, o *Options) { o.Mode = Replicate })
	mustDo(t, errs[0])
	mustDo(t, os.Remove(filepath.Join(base, "2", "large")))
	clocks := make([]*clock, 4)
	_, errs = stageAll(4, src, base, func(rank int, o *Options) {
		clocks[rank] = &clock{at: time.Unix(1, 0)}
		o.Mode, o.MaxBytesPerSecond, o.now, o.pause, o.Readers = Replicate, 1000, clocks[rank].now,
			clocks[rank].pause, 1
	})
	mustDo(t, errs[0])
	for rank, c := range clocks {
		took := c.now().Sub(time.Unix(1, 0)).Seconds()
		if rank == 2 && (took < 20 || took > 25) || rank != 2 && took != 0 {
			t.Errorf("rank %d waited %v s for its part of 25 s", rank, took)
		}
	}
}
