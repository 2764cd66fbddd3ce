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

// PartitionHits returns how many draws from place begin on are hits when each of the owners runs MIN in a partition of its own: the
// bound of any policy that leaves samples with the owner that their hash says. The partitions are those of Run.
func PartitionHits(ids []scheduler.SampleID, begin, samples, owners int, capacity int64) int64 {
	hits := int64(0)
	for owner := range owners {
		var own []scheduler.SampleID
		warm := 0
		for i, id := range ids {
			if scheduler.Owner(id, owners) != owner {
				continue
			}
			if i < begin {
				warm++
			}
			own = append(own, id)
		}
		for _, hit := range MinHits(own, samples, part(capacity, owner, owners))[warm:] {
			if hit {
				hits++
			}
		}
	}
	return hits
}

// part is an owner's part of the whole: the parts differ by at most one and sum to the whole.
func part(whole int64, owner, owners int) int64 {
	return whole*int64(owner+1)/int64(owners) - whole*int64(owner)/int64(owners)
}
