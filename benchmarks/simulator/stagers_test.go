package simulator

import (
	"reflect"
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

// TestNoMoreHitsThanMIN checks that online runs stay below the offline bound, and that everything
// is delivered as it was drawn.
func TestNoMoreHitsThanMIN(t *testing.T) {
	losses := recorded(t, 3)
	for _, sampler := range []string{"pads", "uniform", "torch", "subset"} {
		for _, ranks := range []int{1, 4} {
			for _, capacity := range []float64{0.01, 0.2, 1} {
				r := mustRunStagers(t, Config{
					Trace: &Trace{Losses: losses}, System: mustFind(t, "rankpool"),
					Sampler: sampler, Ranks: ranks, BatchSize: 64 / ranks, Capacity: capacity,
					SkipEpochs: 1, Seed: 1,
				})
				memory := int64(capacity * float64(len(losses[0])))
				var hits, bound, delivered int64
				for _, h := range r.Hits {
					hits += h
				}
				for _, hit := range MinHits(r.IDs, len(losses[0]), memory) {
					if hit {
						bound++
					}
				}
				if hits > bound || capacity > 0 && hits < bound/2 {
					t.Errorf("%s, %d ranks, %v: %d hits, MIN has %d", sampler, ranks, capacity,
						hits, bound)
				}
				if parted := PartitionHits(r.IDs, 0, len(losses[0]), ranks,
					memory); parted > bound || hits > parted && sampler != "pads" {
					t.Errorf("%s, %d ranks, %v: %d hits, MIN in partitions has %d, MIN %d", sampler,
						ranks, capacity, hits, parted, bound)
				}
				for _, n := range r.Found {
					delivered += n
				}
				if want := int64(len(r.IDs) - r.Begin[1]); delivered != want {
					t.Errorf("%s, %d ranks, %v: %d delivered of %d drawn", sampler, ranks, capacity,
						delivered, want)
				}
				notCached := r.Found[stager.FromFallback] + r.Found[stager.NotHere]
				if notCached+r.Found[stager.Unreadable] != 0 {
					t.Errorf("%s, %d ranks, %v: without faults, sources are %v", sampler, ranks,
						capacity, r.Found)
				}
				if capacity == 1 && (r.Reads != r.Missed || r.Reads > int64(len(losses[0]))) {
					t.Errorf("%s, %d ranks: with room for all, %d reads of %d samples missed",
						sampler, ranks, r.Reads, r.Missed)
				}
			}
		}
	}
}

func TestRunIsDeterministic(t *testing.T) {
	cfg := Config{
		Trace: &Trace{Losses: recorded(t, 2)}, System: mustFind(t, "rankpool"),
		Sampler: "pads", Ranks: 3, BatchSize: 16, Capacity: 0.3, Seed: 7,
	}
	a, b := mustRunStagers(t, cfg), mustRunStagers(t, cfg)
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs of one configuration differ")
	}
	if a.LocalShare() < 0.5 || a.LocalShare() > 1 {
		t.Errorf("the local share is %v", a.LocalShare())
	}
}

func TestRunErrors(t *testing.T) {
	losses := [][]float32{{1, 2, 3, 4}}
	if _, err := RunStagers(Config{
		Trace: &Trace{Losses: losses}, System: mustFind(t, "rankpool"),
		Sampler: "nothing", Capacity: 1, Ranks: 1, BatchSize: 2,
	}); err == nil {
		t.Error("a sampler that does not exist was run")
	}
	if _, err := RunStagers(Config{
		Trace: &Trace{Losses: losses}, System: mustFind(t, "rankpool"),
		Policy: "nothing", Capacity: 1, Ranks: 1, BatchSize: 2,
	}); err == nil {
		t.Error("a policy that does not exist was run")
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
			r := mustRunStagers(t, Config{
				Trace: &Trace{Losses: losses}, System: mustFind(t, "rankpool"),
				Sampler: sampler, Ranks: ranks, BatchSize: 64 / ranks, Capacity: 0.1,
				TierCapacity: 0.3, Seed: 1,
			})
			bound, hits := int64(0), int64(0)
			for _, hit := range MinHits(r.IDs, len(losses[0]), int64(0.4*float64(len(losses[0])))) {
				if !hit {
					bound++
				}
			}
			for _, h := range r.Hits {
				hits += h
			}
			if r.Reads < bound || float64(r.Reads) > 1.04*float64(bound) {
				t.Errorf("%s, %d ranks: %d reads of storage, MIN has %d", sampler, ranks, r.Reads,
					bound)
			}
			if r.Reads+r.TierReads+hits != int64(len(r.IDs)) {
				t.Errorf(
					"%s, %d ranks: %d draws are not %d reads of storage, %d of tiers and %d hits",
					sampler, ranks, len(r.IDs), r.Reads, r.TierReads, hits)
			}
		}
	}
}
