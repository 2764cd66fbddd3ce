package simulator

import (
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// recorded returns the first epochs of losses recorded from training.
func recorded(t *testing.T, epochs int) [][]float32 {
	t.Helper()
	losses, err := LoadLosses("../../scheduler/testdata/fashion-cnn-8k-losses.npy")
	if err != nil {
		t.Fatal(err)
	}
	return losses[:epochs]
}

// ranksOf runs the real schedulers to the end, and calls found for each delivery.
func ranksOf(t *testing.T, cfg Config, found func(stager.Deliver)) *stagers {
	t.Helper()
	s, err := newSetup(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newStagers(s)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range s.Epochs {
		p.train(epoch, found)
	}
	p.finish()
	return p
}

// ids returns the draws of all epochs in order.
func (p *stagers) ids() (ids []draw.SampleID) {
	for _, plan := range p.plans {
		ids = append(ids, plan.IDs...)
	}
	return ids
}

// TestNoMoreHitsThanMIN checks that online runs stay below the offline bound, and that everything
// is delivered as it was drawn.
func TestNoMoreHitsThanMIN(t *testing.T) {
	losses := recorded(t, 3)
	samples := int64(len(losses[0]))
	for _, sampler := range []string{"pads", "uniform", "torch", "subset"} {
		for _, ranks := range []int{1, 4} {
			for _, capacity := range []float64{0.01, 0.2, 1} {
				var found [stager.Unreadable + 1]int64 // by source
				delivered := int64(0)
				p := ranksOf(t, Config{
					Trace: &Trace{Losses: losses}, System: mustFind(t, "rankpool"),
					Sampler: sampler, Ranks: ranks, BatchSize: 64 / ranks, Capacity: capacity, Seed: 1,
				}, func(d stager.Deliver) {
					for _, source := range d.Source {
						found[source]++
						delivered++
					}
				})
				memory := int64(capacity * float64(samples))
				ids, hits, reads := p.ids(), p.result.Hits, p.result.StorageBytes
				bound := minHits(ids, len(losses[0]), memory)
				if hits > bound || capacity > 0 && hits < bound/2 {
					t.Errorf("%s, %d ranks, %v: %d hits, MIN has %d", sampler, ranks, capacity,
						hits, bound)
				}
				if parted := partitionHits(ids, len(losses[0]), ranks,
					memory); parted > bound || hits > parted && sampler != "pads" {
					t.Errorf("%s, %d ranks, %v: %d hits, MIN in partitions has %d, MIN %d", sampler,
						ranks, capacity, hits, parted, bound)
				}
				if delivered != int64(len(ids)) {
					t.Errorf("%s, %d ranks, %v: %d delivered of %d drawn", sampler, ranks, capacity,
						delivered, len(ids))
				}
				if found[stager.FromFallback]+found[stager.NotHere]+found[stager.Unreadable] != 0 {
					t.Errorf("%s, %d ranks, %v: without faults, sources are %v", sampler, ranks,
						capacity, found)
				}
				if capacity == 1 && (reads != p.result.Distinct || reads > samples) {
					t.Errorf("%s, %d ranks: with room for all, %d reads of %d samples", sampler,
						ranks, reads, p.result.Distinct)
				}
			}
		}
	}
}

// TestMinHits checks traces whose best hits were found by hand.
func TestMinHits(t *testing.T) {
	for _, c := range []struct {
		trace    string
		capacity int64
		want     string // h: hit
	}{
		{"aaaa", 1, "-hhh"},
		{"aaaa", 0, "----"},
		{"abab", 1, "--h-"}, // b is not let in
		{"abcab", 2, "---hh"},
		{"abcabc", 2, "---hh-"},
		{"abcbca", 1, "---h--"},
	} {
		var ids []draw.SampleID
		for _, letter := range c.trace {
			ids = append(ids, draw.SampleID(letter-'a'))
		}
		got := ""
		for _, hit := range MinHits(ids, 26, c.capacity) {
			got += map[bool]string{true: "h", false: "-"}[hit]
		}
		if strings.Count(got, "h") != strings.Count(c.want, "h") {
			t.Errorf("%s in %d: %s, the best is %s", c.trace, c.capacity, got, c.want)
		}
	}
}

// TestTierAndMemoryAreOneCache checks that storage is read as if memory and tier were one cache,
// against what MIN reads with both.
func TestTierAndMemoryAreOneCache(t *testing.T) {
	losses := recorded(t, 4)
	for _, sampler := range []string{"pads", "torch"} {
		for _, ranks := range []int{1, 16} {
			p := ranksOf(t, Config{
				Trace: &Trace{Losses: losses}, System: mustFind(t, "rankpool"),
				Sampler: sampler, Ranks: ranks, BatchSize: 64 / ranks, Capacity: 0.1,
				TierCapacity: 0.3, Seed: 1,
			}, func(stager.Deliver) {})
			ids, hits, reads := p.ids(), p.result.Hits, p.result.StorageBytes
			draws := int64(len(ids))
			bound := draws - minHits(ids, len(losses[0]), int64(0.4*float64(len(losses[0]))))
			if reads < bound || float64(reads) > 1.04*float64(bound) {
				t.Errorf("%s, %d ranks: %d reads of storage, MIN has %d", sampler, ranks, reads, bound)
			}
			if reads+p.tierReads+hits != draws {
				t.Errorf(
					"%s, %d ranks: %d draws are not %d reads of storage, %d of tiers and %d hits",
					sampler, ranks, draws, reads, p.tierReads, hits)
			}
		}
	}
}
