package simulator

import (
	"math"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
	"rankpool/scheduler/systems"
)

// MinHits returns which draws of a trace are hits of Bélády's MIN with bypass, in one cache of
// capacity samples that begins empty.
//
// It is the offline bound: no cache of that size has more hits on the trace. It runs the same
// driver as the online policy, with the exact place of every next draw.
//
// Source: Belady, IBM Systems Journal 1966; bypass as in McFarling, ISCA 1992.
func MinHits(ids []draw.SampleID, samples int, capacity int64) []bool {
	next := nextPlaces(ids, samples)
	cache := stager.NewCache(stager.NewClairvoyant(), capacity,
		func(draw.SampleID) int64 { return 1 })
	hits := make([]bool, len(ids))
	for i, id := range ids {
		hits[i] = cache.Draw(stager.Use{ID: id, Next: next[i]},
			func(draw.SampleID) {}) == stager.Hit
	}
	return hits
}

// nextPlaces returns, for every draw, the place of the next draw of its sample; +Inf if there is
// none.
func nextPlaces(ids []draw.SampleID, samples int) []float64 {
	next, last := make([]float64, len(ids)), make([]float64, samples)
	for i := range last {
		last[i] = math.Inf(1)
	}
	for i := len(ids) - 1; i >= 0; i-- {
		next[i] = last[ids[i]]
		last[ids[i]] = float64(i)
	}
	return next
}

// part returns an owner's part of the whole: the parts differ by at most one and sum to the whole.
func part(whole int64, owner, owners int) int64 {
	return whole*int64(owner+1)/int64(owners) - whole*int64(owner)/int64(owners)
}

// future returns, for every draw of all jobs in the order of their batches, the place in that order
// of the sample's next draw; +Inf if there is none. Draws must not depend on what is served.
func (s *setup) future() ([]float64, error) {
	var feeds []feed
	for job := range s.Jobs {
		f, err := s.newPlannedFeed(job)
		if err != nil {
			return nil, err
		}
		feeds = append(feeds, f)
	}
	var ids []draw.SampleID
	plans := make([]*plan.Plan, s.Jobs)
	for epoch := range s.Epochs {
		batches := 0
		for job, f := range feeds {
			var err error
			if plans[job], err = f.begin(epoch); err != nil {
				return nil, err
			}
			batches = max(batches, plans[job].Batches())
		}
		var report protocol.Report
		for number := range batches {
			for job, f := range feeds {
				if number < plans[job].Batches() {
					lo, hi := plans[job].Held().Range(number)
					ids = append(ids, plans[job].Held().IDs[lo:hi]...)
					lo, hi = plans[job].Range(number)
					s.traceOf(job).train(epoch, plans[job].IDs[lo:hi], &report)
					f.report(epoch, number, report.Losses)
				}
			}
		}
	}
	return nextPlaces(ids, s.held()), nil
}

// minPool is MIN in each rank's partition separately; a sample's hash chooses its partition.
//
// Differs: with samples of different sizes MIN is not a bound, neither here nor pooled: it evicts
// whole samples, farthest first, while the optimal choice is a hard problem.
type minPool struct {
	memory *systems.Memory
	caches []*stager.Cache // by rank
	block  int             // of so many neighbours one rank is the owner
}

func (s *setup) newMinPool(memory *systems.Memory) *minPool {
	p := &minPool{memory: memory, block: 1}
	if s.pieces != nil {
		p.block = s.pieces.Block
	}
	for r := range s.Ranks {
		p.caches = append(p.caches, stager.NewCache(stager.NewClairvoyant(), s.part(r), s.size))
	}
	return p
}

func (p *minPool) Begin(int, int, []draw.SampleID) {}

func (p *minPool) Batch(b *systems.Batch, answers []systems.Answer) {
	for i, id := range b.IDs {
		owner := draw.OwnerOfBlock(id, p.block, len(p.caches))
		u := stager.Use{ID: id, Next: b.Next[i]}
		answers[i] = p.memory.Draw(p.caches[owner], u, int32(owner))
	}
}

func (p *minPool) Trained(*systems.Batch, protocol.Report) {}
