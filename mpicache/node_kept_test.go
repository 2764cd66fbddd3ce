package mpicache

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
)

// fakeKept keeps copies in a map; some reads of them fail.
type fakeKept struct {
	broken int // one in so many reads fails; 0: none

	mu      sync.Mutex
	samples map[draw.SampleID][]byte
	reads   int
}

func (f *fakeKept) Read(id draw.SampleID, into []byte, done func(error)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.samples[id]
	if b == nil {
		return false
	}
	f.reads++
	if f.broken > 0 && f.reads%f.broken == 0 {
		go done(errors.New("the copy is broken"))
		return true
	}
	go func() {
		copy(into, b)
		done(nil)
	}()
	return true
}

func (f *fakeKept) Write(id draw.SampleID, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.samples[id] = slices.Clone(b)
}

// TestKeptCopiesChangeNoStream checks that a second run reads the copies that a first one left, and
// that the stream stays the same whatever the copies do.
func TestKeptCopiesChangeNoStream(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		for _, broken := range []int{0, 3} {
			t.Run(fmt.Sprintf("%d-ranks/broken-%d", ranks, broken), func(t *testing.T) {
				kept := make([]*fakeKept, ranks)
				for r := range kept {
					kept[r] = &fakeKept{samples: map[draw.SampleID][]byte{}, broken: broken}
				}
				run := func() (cl *cluster, stream []string, hits int64) {
					cl = newCluster(t, ranks, 240, 2000, func(cfg *Config) {
						cfg.Data[0].KeepsCopies, cfg.Data[0].Kept = true, kept[cfg.Transport.Rank()]
					})
					stream = cl.train(2, 6, 3, "pads")
					cl.close()
					for _, r := range cl.records[:3] {
						hits += int64(r.(stats.Epoch).Sums[stats.TierHits])
					}
					return cl, stream, hits
				}
				without := newCluster(t, ranks, 240, 2000)
				want := without.train(2, 6, 3, "pads")
				without.close()
				first, stream, _ := run()
				if !slices.Equal(stream, want) {
					t.Error("the first stream differs from that without copies")
				}
				second, stream, hits := run()
				if !slices.Equal(stream, want) {
					t.Error("the second stream differs from that without copies")
				}
				a, b := first.allReads(), second.allReads()
				if broken == 0 && b != 0 || broken > 0 && (b == 0 || b >= a) || hits == 0 {
					t.Errorf("%d reads of storage, then %d and %d hits of copies", a, b, hits)
				}
			})
		}
	}
}
