package systems

import (
	"cmp"
	"slices"

	"rankpool/scheduler/draw"
)

// rankVariance is the variance over epochs of each sample's importance rank. It is exact, in
// integers, for up to 2^24 samples and 128 epochs.
//
// Source: Chen et al., "IMPACT", IEEE Transactions on Computers 2025, §II-D and §III-B.
type rankVariance struct {
	epochs       uint64
	sum, squares []uint64 // by sample
}

func newRankVariance(samples int) *rankVariance {
	return &rankVariance{sum: make([]uint64, samples), squares: make([]uint64, samples)}
}

// add adds the importance of all samples at the end of an epoch.
func (v *rankVariance) add(scores []float32) {
	v.epochs++
	for i, rank := range draw.Ranks(scores) {
		r := uint64(rank)
		v.sum[i] += r
		v.squares[i] += r * r
	}
}

// of returns a sample's variance times the square of the number of epochs.
func (v *rankVariance) of(i draw.SampleID) uint64 {
	return v.epochs*v.squares[i] - v.sum[i]*v.sum[i]
}

// top returns the samples with the highest variance, as many as fit in sizeBytes, sorted by id.
func (v *rankVariance) top(
	sizeBytes int64, size func(draw.SampleID) int64,
) []draw.SampleID {
	order := make([]draw.SampleID, len(v.sum))
	for i := range order {
		order[i] = draw.SampleID(i)
	}
	slices.SortFunc(order, func(a, b draw.SampleID) int {
		return cmp.Or(cmp.Compare(v.of(b), v.of(a)), cmp.Compare(a, b))
	})
	n := 0
	for ; n < len(order) && size(order[n]) <= sizeBytes; n++ {
		sizeBytes -= size(order[n])
	}
	top := order[:n]
	slices.Sort(top)
	return top
}
