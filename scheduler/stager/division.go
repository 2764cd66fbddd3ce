package stager

import (
	"cmp"
	"slices"
)

// Claim is a data set's claim to the memory of a rank.
type Claim struct {
	WholeBytes int64 // memory that holds all of it
	EvenBytes  int64 // its part by size
	// Gain is the sum of b·n over its trainings, b the benefit of one with n trainers, without those
	// that gain nothing; below 0: the benefit of one is unknown.
	//
	// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3: G, the GPU resources saved.
	Gain float64
}

// Divide divides the memory of a rank among data sets: those with the largest ratio of benefit to
// cost are kept whole, as far as memory reaches, the first in a tie. A data set whose benefit is
// unknown keeps its part by size. What is left goes to those without a benefit, in proportion to
// their sizes.
//
// Source: Quiver, §5.3. Differs: there a data set is kept whole, or two chunks of it, or nothing,
// since any sample of a chunk may be served; here each sample is served as drawn, and the data set
// that memory no longer holds whole is kept in part. There t_h is the time with hits only; here it
// is the time with the memory that the training had when it was measured, so a large data set, of
// which memory held a small part, seems to gain less. There the space of all nodes is divided as
// one; here each rank divides its own. There a later measurement replaces an earlier one; here the
// first counts.
func Divide(claims []Claim, capacityBytes int64) []int64 {
	parts := make([]int64, len(claims))
	var gaining, idle []int
	idleBytes := int64(0)
	for i, c := range claims {
		switch {
		case c.Gain < 0:
			parts[i] = min(c.EvenBytes, capacityBytes)
			capacityBytes -= parts[i]
		case c.Gain > 0:
			gaining = append(gaining, i)
		default:
			idle, idleBytes = append(idle, i), idleBytes+c.WholeBytes
		}
	}
	perByte := func(i int) float64 { return claims[i].Gain / float64(max(1, claims[i].WholeBytes)) }
	slices.SortStableFunc(gaining, func(i, j int) int { return cmp.Compare(perByte(j), perByte(i)) })
	for _, i := range gaining {
		parts[i] = min(claims[i].WholeBytes, capacityBytes)
		capacityBytes -= parts[i]
	}
	share := float64(min(idleBytes, capacityBytes)) / float64(max(1, idleBytes))
	for _, i := range idle {
		parts[i] = int64(share * float64(claims[i].WholeBytes))
	}
	return parts
}

// idleWeight is the weight of a training that gains nothing from the cache, as measured: a true 1.2
// may be measured as 1.1. With a smaller weight, samples that it will use soon would be evicted for
// samples that the others use only in the next epoch.
const idleWeight = 1. / 8

// Weights returns what memory is worth to each of the trainings on a data set relative to the
// others, by their gains: the largest gets 1. All get 1 as long as one is unknown, or if none
// gains.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-D: AIV_i = Σ benefit_j · RIV_ij over the eligible
// jobs. Differs: the weight applies not to the percentile RIV of a sample's importance but to how
// soon it is used, and of several jobs the soonest weighted use counts, not the sum, since the
// sample stays in memory for all of them. The number of a job's trainers counts, too, as in
// Quiver's G. There a job is eligible from 1.5 on, and others are left out; here one below 1.1 has
// a small weight.
func Weights(gains []float64) []float64 {
	weights := make([]float64, len(gains))
	most := 0.0
	for _, g := range gains {
		most = max(most, g)
	}
	unknown := slices.ContainsFunc(gains, func(g float64) bool { return g < 0 })
	for i, g := range gains {
		if weights[i] = 1; !unknown && most > 0 {
			weights[i] = max(g/most, idleWeight)
		}
	}
	return weights
}
