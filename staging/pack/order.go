package pack

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"rankpool/scheduler/draw"
)

// AsIs returns the ids of n samples in order.
func AsIs(n int) []draw.SampleID {
	ids := make([]draw.SampleID, n)
	for i := range ids {
		ids[i] = draw.SampleID(i)
	}
	return ids
}

// ByImportance returns the ids of the samples with these scores, highest score first, NaN last,
// ties by id.
func ByImportance(scores []float32) []draw.SampleID {
	ids := AsIs(len(scores))
	slices.SortStableFunc(ids, func(a, b draw.SampleID) int {
		return cmp.Compare(scores[b], scores[a])
	})
	return ids
}

// Shuffled returns the ids of n samples in an order determined by seed.
func Shuffled(n int, seed uint64) []draw.SampleID {
	ids := AsIs(n)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(n, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}
