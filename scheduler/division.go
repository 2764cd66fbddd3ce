package scheduler

import (
	"cmp"
	"slices"
)

// Claim is a data set's claim to the memory of a rank.
type Claim struct {
	WholeBytes int64 // memory that holds all of it
	EvenBytes  int64 // its part by size
	// Gain is the sum of b·n over its trainings, b the benefit of one on n trainers, without those
	// that gain nothing; below 0: the benefit of one is unknown.
	//
	// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3: G, the GPU resources saved.
	Gain float64
}

// Divide divides the memory of a rank among data sets: those with the largest ratio of benefit to
// cost are kept whole, as far as memory reaches, the first in a tie. A data set whose benefit is
// unknown keeps its part by size. What is left goes to those without a benefit, in proportion to
// their sizes, or, with giveBack, to none.
//
// Source: Quiver, §5.3. Differs: there a data set is kept whole, or two chunks of it, or nothing,
// since any sample of a chunk may be served; here, where each is served as drawn, the one that
// memory no longer holds whole is kept in part.
func Divide(claims []Claim, capacityBytes int64, giveBack bool) []int64 {
	parts := make([]int64, len(claims))
	var known []int
	for i, c := range claims {
		if c.Gain < 0 {
			parts[i] = min(c.EvenBytes, capacityBytes)
			capacityBytes -= parts[i]
		} else {
			known = append(known, i)
		}
	}
	perByte := func(i int) float64 { return claims[i].Gain / float64(max(1, claims[i].WholeBytes)) }
	slices.SortStableFunc(known, func(i, j int) int { return cmp.Compare(perByte(j), perByte(i)) })
	idle := int64(0)
	for _, i := range known {
		if claims[i].Gain == 0 {
			idle += claims[i].WholeBytes
			continue
		}
		parts[i] = min(claims[i].WholeBytes, capacityBytes)
		capacityBytes -= parts[i]
	}
	for _, i := range known {
		if whole := claims[i].WholeBytes; claims[i].Gain == 0 && idle > 0 && !giveBack {
			share := float64(min(idle, capacityBytes)) / float64(idle)
			parts[i] = int64(share * float64(whole))
		}
	}
	return parts
}

// idleWeight is the weight of a training that gains nothing from the cache, as measured: 1.1 may
// have been 1.2. With less, samples that others share with it soon would leave for those that they
// use in the next epoch.
const idleWeight = 1. / 8

// Weights returns what memory is worth to each of the trainings on a data set beside the others, by
// their gains: the largest has 1. As long as one is unknown all have 1, and so have all if none
// gains.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-D: AIV weighs a sample's importance in each job
// by the job's benefit, and leaves out jobs that do not benefit. Differs: what is weighed is how
// soon a sample is used, and a job counts by its trainers, as in Quiver's G.
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
