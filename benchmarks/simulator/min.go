package simulator

import (
	"math"

	"rankpool/scheduler"
)

// MinHits returns which draws of a trace are hits of Bélády's MIN with bypass, in one cache of capacity samples that begins empty.
//
// It is the offline bound: no cache of that size has more hits on the trace. It runs the same driver as the online policy, with the
// exact place of every next draw.
//
// Source: Belady, IBM Systems Journal 1966; bypass as in McFarling, ISCA 1992.
func MinHits(ids []scheduler.SampleID, samples int, capacity int64) []bool {
	next := make([]float64, len(ids))
	last := make([]float64, samples)
	for i := range last {
		last[i] = math.Inf(1)
	}
	for i := len(ids) - 1; i >= 0; i-- {
		next[i] = last[ids[i]]
		last[ids[i]] = float64(i)
	}
	policy, err := scheduler.NewPolicy("clairvoyant", samples)
	if err != nil {
		panic("simulator: " + err.Error())
	}
	cache := scheduler.NewCache(policy, samples, capacity, func(scheduler.SampleID) int64 { return 1 })
	hits := make([]bool, len(ids))
	for i, id := range ids {
		hits[i] = cache.Draw(id, next[i], func(scheduler.SampleID) {}) == scheduler.Hit
	}
	return hits
}
