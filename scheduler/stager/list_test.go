package stager

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// scripts draw an epoch of n samples, all trainers' together, as samplers that no rank knows do.
var scripts = map[string]func(rng *rand.Rand, n int) []draw.SampleID{
	"a permutation": func(rng *rand.Rand, n int) (ids []draw.SampleID) {
		for _, id := range rng.Perm(n) {
			ids = append(ids, draw.SampleID(id))
		}
		return ids
	},
	"by weights, with replacement": func(rng *rand.Rand, n int) (ids []draw.SampleID) {
		for range n {
			ids = append(ids, draw.SampleID(float64(n)*rng.Float64()*rng.Float64()))
		}
		return ids
	},
	"each sample three times": func(rng *rand.Rand, n int) (ids []draw.SampleID) {
		for _, id := range rng.Perm(n)[:n/3] {
			ids = append(ids, draw.SampleID(id), draw.SampleID(id), draw.SampleID(id))
		}
		return ids
	},
}

// handIn returns the parts of trainers that take the draws in turns, in batches of 4 to 12.
func handIn(rng *rand.Rand, ids []draw.SampleID, trainers int) []plan.List {
	lists := make([]plan.List, trainers)
	for t := 0; len(ids) > 0; t = (t + 1) % trainers {
		n := min(4+rng.IntN(9), len(ids))
		lists[t].Counts = append(lists[t].Counts, int32(n))
		lists[t].IDs, ids = append(lists[t].IDs, ids[:n]...), ids[n:]
	}
	return lists
}

// listedRank is a rank that is alone, with all trainers, and samples of one byte.
type listedRank struct {
	stager *Stager
	cfg    plan.Config
	ticket uint64
}

// plan makes the plan of an epoch that was handed in, and passes it to the stager.
func (r *listedRank) plan(epoch int, lists []plan.List) *plan.Plan {
	cfg := r.cfg
	cfg.Lists = lists
	p := plan.New(cfg, epoch, nil)
	r.step(Planned{Plan: p})
	return p
}

// train makes the trainers train an epoch, and returns the planned hits.
func (r *listedRank) train(p *plan.Plan) int {
	for b := range p.Batches() {
		for t := range p.World {
			r.ticket++
			r.step(Requested{Trainer: t, Epoch: p.Epoch, Batch: b, Ticket: r.ticket})
		}
	}
	return r.stager.PlannedHits(0, p.Epoch)
}

func (r *listedRank) step(e Event) {
	for _, c := range r.stager.Step(e, nil) {
		switch c := c.(type) {
		case Fetch:
			r.step(Fetched{ID: c.ID})
		case Deliver:
			r.step(Released{Lease: c.Lease})
		}
	}
}

// knownHits counts the hits of MIN that knows an epoch and what is handed in ahead, that of the
// epoch after it: beyond them a sample has no next use.
func knownHits(epochs, ahead [][]draw.SampleID, samples int, capacity int64) (hits int) {
	c := NewCache(NewClairvoyant(), capacity, func(draw.SampleID) int64 { return 1 })
	use := func(id draw.SampleID, place int32) Use {
		if place == plan.NoPlace {
			return Use{ID: id, Next: math.Inf(1)}
		}
		return Use{ID: id, Next: float64(place)}
	}
	for e, ids := range epochs {
		next, first := nextPlaces(slices.Concat(ids, ahead[e]), samples)
		c.RefreshAll(func(id draw.SampleID, _ float64) Use { return use(id, first[id]) })
		for i, id := range ids {
			if c.Draw(use(id, next[i]), nobody) == Hit {
				hits++
			}
		}
	}
	return hits
}

// TestListsAgainstMIN compares the hits of epochs that were handed in, each while the one before is
// trained, with those of MIN on the same draws that knows as much. Once trainers draw otherwise
// than they have handed in ahead.
func TestListsAgainstMIN(t *testing.T) {
	const samples, epochs, memory = 3000, 6, 600
	for name, script := range scripts {
		for _, trainers := range []int{2, 4} {
			rng := rand.New(rand.NewPCG(uint64(trainers), 7))
			world := make([]int32, trainers)
			r := &listedRank{
				stager: New(Config{
					Ranks: 1, World: world, Samples: samples, Policy: NewClairvoyant(),
					Size:          func(draw.SampleID) int64 { return 1 },
					CapacityBytes: memory, WindowBytes: samples / 10,
				}),
				cfg: plan.Config{Samples: samples, World: world, Ranks: 1, Assignment: plan.AssignSampler},
			}
			draws := func(epoch int) *plan.Plan {
				return r.plan(epoch, handIn(rng, script(rng, samples), trainers))
			}
			hits, p := 0, draws(0)
			var all, ahead [][]draw.SampleID
			for epoch := 1; epoch <= epochs; epoch++ {
				next := draws(epoch)
				all, ahead = append(all, p.IDs), append(ahead, next.IDs)
				hits += r.train(p)
				if p = next; epoch == epochs/2 {
					p = draws(epoch)
				}
			}
			bound := knownHits(all, ahead, samples, memory)
			trace := slices.Concat(all...)
			t.Logf("%s, %d trainers: %d hits, %d of MIN that knows as much, %.0f of MIN", name,
				trainers, hits, bound, share(minHits(trace, memory))*float64(len(trace)))
			if float64(hits) < 0.995*float64(bound) {
				t.Errorf("%s, %d trainers: %d hits, MIN has %d", name, trainers, hits, bound)
			}
		}
	}
}
