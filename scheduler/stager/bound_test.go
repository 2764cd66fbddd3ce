package stager

import (
	"math"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/schedulertest"
)

// drive runs epochs of sampler on recorded losses and on owners partitions, and returns all draws
// with their outcomes. Scores are folded, and predictions refreshed, lag global batches after the
// draw.
func drive(
	t *testing.T, losses [][]float32, sampler string, capacity float64, owners, batch,
	lag int,
) (ids []draw.SampleID, hit []bool, warm int) {
	t.Helper()
	n := len(losses[0])
	s, err := draw.NewSampler(draw.SamplerConfig{
		Name: sampler, Samples: n, Seed: 1, BatchSize: batch, World: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	scorer, err := protocol.NewScorer("logrank")
	if err != nil {
		t.Fatal(err)
	}
	one := func(draw.SampleID) int64 { return 1 }
	caches := make([]*Cache, owners)
	for o := range caches {
		caches[o] = NewCache(NewClairvoyant(), int64(capacity*float64(n)/float64(owners)),
			one)
	}
	ledger := protocol.NewLedger(scorer, protocol.EqualScores(n, scorer.Initial(batch)))
	for epoch := range losses {
		if epoch == 3 {
			warm = len(ids)
		}
		ledger.Finish(0, epoch)
		ledger.Fold(nil)
		var scores []float32
		if s.Weighted() {
			scores = ledger.Take()
		}
		plan := plan.New(
			plan.Config{Sampler: s, Samples: n, BatchSize: batch, World: []int32{0}, Ranks: 1},
			epoch, scores)
		ledger.Open(plan)
		next, first := nextPlaces(plan.IDs, n)
		for _, c := range caches {
			c.RefreshAll(
				func(id draw.SampleID, _ float64) Use {
					return Use{ID: id, Next: nextUse(plan, id, first[id], ledger.Scores())}
				})
		}
		for b := range plan.Batches() {
			lo, hi := plan.Range(b)
			report := make([]float32, 0, batch)
			for i := lo; i < hi; i++ {
				id := plan.IDs[i]
				c := caches[draw.Owner(id, owners)]
				ids = append(ids, id)
				hit = append(
					hit, c.Draw(Use{ID: id, Next: nextUse(plan, id, next[i], ledger.Scores())},
						func(draw.SampleID) {}) == Hit)
				report = append(report, losses[epoch][id])
			}
			if err := ledger.Report(0, epoch, b, report, nil); err != nil {
				t.Fatal(err)
			}
			if b%lag == lag-1 {
				ledger.Fold(func(f protocol.Folded) {
					for _, id := range f.IDs {
						c := caches[draw.Owner(id, owners)]
						if next, in := c.Next(id); in && next >= float64(epoch+1) {
							c.Refresh(Use{ID: id, Next: plan.Next(id, ledger.Scores()[id])})
						}
					}
				})
			}
		}
	}
	return ids, hit, warm
}

func nextUse(p *plan.Plan, id draw.SampleID, place int32, scores []float32) float64 {
	if place >= 0 {
		return p.Time(place)
	}
	return p.Next(id, scores[id])
}

// minHits is Bélády's MIN with bypass over the whole trace.
func minHits(ids []draw.SampleID, capacity int64) []bool {
	n := 0
	for _, id := range ids {
		n = max(n, int(id)+1)
	}
	last, next := make([]int, n), make([]float64, len(ids))
	for i := range last {
		last[i] = math.MaxInt32
	}
	for i := len(ids) - 1; i >= 0; i-- {
		next[i] = float64(last[ids[i]])
		last[ids[i]] = i
	}
	c := NewCache(NewClairvoyant(), capacity, func(draw.SampleID) int64 { return 1 })
	hit := make([]bool, len(ids))
	for i, id := range ids {
		hit[i] = c.Draw(Use{ID: id, Next: next[i]}, func(draw.SampleID) {}) == Hit
	}
	return hit
}

func share(hit []bool) float64 {
	n := 0
	for _, h := range hit {
		if h {
			n++
		}
	}
	return float64(n) / float64(len(hit))
}

// TestClairvoyantAgainstMIN compares the online policy with the offline bound on losses recorded
// from training.
func TestClairvoyantAgainstMIN(t *testing.T) {
	losses := schedulertest.Losses(t)
	for _, c := range []struct {
		sampler string
		owners  int
		atLeast float64 // of the bound
	}{
		{"pads", 1, 0.995},
		{"pads", 4, 0.985},
		{"torch", 1, 0.995},
		{"uniform", 1, 0.995},
		{"weighted-once", 1, 0.995},
		{"subset", 1, 0.995},
		{"selective", 1, 0.995},
	} {
		for _, capacity := range []float64{0.1, 0.2, 0.4} {
			ids, hit, warm := drive(t, losses, c.sampler, capacity, c.owners, 64, 4)
			bound := share(minHits(ids, int64(capacity*float64(len(losses[0]))))[warm:])
			got := share(hit[warm:])
			t.Logf("%-14s %d owners %3.0f %%: hits %.3f, MIN %.3f (%.3f of it)", c.sampler, c.owners,
				100*capacity, got, bound, got/bound)
			if got < c.atLeast*bound {
				t.Errorf("%s, %d owners, %v: %.3f of the bound", c.sampler, c.owners, capacity,
					got/bound)
			}
		}
	}
}

// nextPlaces returns, for each draw, the place of the sample's next draw, and for each sample that
// of its first; plan.NoPlace if there is none.
func nextPlaces(ids []draw.SampleID, samples int) (next, first []int32) {
	next, first = make([]int32, len(ids)), slices.Repeat([]int32{plan.NoPlace}, samples)
	for i := len(ids) - 1; i >= 0; i-- {
		next[i] = first[ids[i]]
		first[ids[i]] = int32(i)
	}
	return next, first
}
