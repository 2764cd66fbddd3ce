package mpicache

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
)

// fakeTier keeps samples in a map, and fails as set. It works in order: failures are consecutive
// only if set so.
type fakeTier struct {
	tierFaults
	mu      sync.Mutex
	samples map[draw.SampleID][]byte
	last    chan struct{} // closed when the last work requested is done
	stores  int
	recalls int
	ended   bool
}

type tierFaults struct {
	broken   bool // nothing works
	flaky    int  // one in so many reads and writes fails
	refusing int  // one in so many writes is refused
}

var errFakeTier = errors.New("the disk fails")

func (f *fakeTier) fails(n int) bool { return f.ended || f.broken || f.flaky > 0 && n%f.flaky == 0 }

// later does the work after all earlier work. The lock must be held.
func (f *fakeTier) later(work func()) {
	before, done := f.last, make(chan struct{})
	f.last = done
	go func() {
		if before != nil {
			<-before
		}
		work()
		close(done)
	}()
}

func (f *fakeTier) Store(id draw.SampleID, b []byte, done func(error)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stores++
	if f.refusing > 0 && f.stores%f.refusing == 0 {
		return false
	}
	if f.fails(f.stores) {
		f.later(func() { done(errFakeTier) })
		return true
	}
	delete(f.samples, id)
	f.later(func() {
		copied := slices.Clone(b)
		f.mu.Lock()
		f.samples[id] = copied
		f.mu.Unlock()
		done(nil)
	})
	return true
}

func (f *fakeTier) Recall(id draw.SampleID, into []byte, _ uint64, done func(error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recalls++
	b := f.samples[id]
	if b == nil || f.fails(f.recalls) {
		f.later(func() { done(errFakeTier) })
		return
	}
	f.later(func() {
		copy(into, b)
		done(nil)
	})
}

func (f *fakeTier) Erase(draw.SampleID) {} // a Store that is under way may still come

func (f *fakeTier) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// tier gives every rank a tier of its own. It must be called before trainers connect.
func (c *cluster) tier(sizeBytes int64, faults tierFaults) []*fakeTier {
	var all []*fakeTier
	for _, n := range c.nodes {
		f := &fakeTier{tierFaults: faults, samples: map[draw.SampleID][]byte{}}
		n.cfg.Data[0].Tier, n.cfg.Data[0].TierBytes, n.cfg.Data[0].TierBlockBytes = f,
			slices.Repeat([]int64{sizeBytes}, len(c.nodes)), 8
		all = append(all, f)
	}
	return all
}

func (c *cluster) allReads() (n int) {
	c.storage.mu.Lock()
	defer c.storage.mu.Unlock()
	for _, reads := range c.storage.reads {
		n += reads
	}
	return n
}

// TestTierChangesNoStream checks that a tier, whatever it does, changes nothing but the reads of
// storage.
func TestTierChangesNoStream(t *testing.T) {
	for _, sampler := range []string{"torch", "pads"} {
		for _, ranks := range []int{1, 2} {
			without := newCluster(t, ranks, 240, 2000)
			want := without.train(2, 6, 3, sampler)
			without.close()
			for _, tier := range []tierFaults{{}, {refusing: 3}, {flaky: 5}, {broken: true}} {
				t.Run(fmt.Sprintf("%s/%d-ranks/%+v", sampler, ranks, tier), func(t *testing.T) {
					log := &strings.Builder{}
					logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
					cl := newCluster(t, ranks, 240, 2000, func(cfg *Config) { cfg.Log = logger })
					tiers := cl.tier(1<<20, tier)
					stream := cl.train(2, 6, 3, sampler)
					cl.close()
					if !slices.Equal(stream, want) {
						t.Error("the stream differs from that without a tier")
					}
					hits := int64(0)
					for _, r := range cl.records[:3] {
						hits += int64(r.(stats.Epoch).Sums[stats.TierHits])
					}
					if works := !tier.broken && tier.flaky == 0; works &&
						(hits == 0 || cl.allReads() >= without.allReads()) {
						t.Errorf("%d tier hits, %d reads of storage, %d without a tier", hits,
							cl.allReads(), without.allReads())
					}
					if warned := strings.Contains(log.String(),
						"the tier fails repeatedly"); warned != tier.broken {
						t.Errorf("the log has %q", log)
					}
					for rank, f := range tiers {
						if !f.ended {
							t.Errorf("rank %d: the tier was not given back", rank)
						}
					}
				})
			}
		}
	}
}
