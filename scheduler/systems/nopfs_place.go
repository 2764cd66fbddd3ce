package systems

import (
	"slices"

	"rankpool/scheduler/draw"
)

// nopfsAccess says how often a worker reads a sample over all epochs.
type nopfsAccess struct {
	id    draw.SampleID
	rank  int32
	count int
}

// nopfsAccesses returns how often each worker reads each sample over all epochs of the samplers,
// the most frequent first; in a tie, the sample that is drawn first, and then the lowest rank. A
// worker is a rank with its trainers; place j of a global batch belongs to trainer j mod W.
//
// Source: Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O", SC 2021,
// access frequencies; PyTorch, DistributedSampler.
func nopfsAccesses(
	samplers []draw.Sampler, samples, epochs, ranks, trainers int,
) []nopfsAccess {
	most := epochs * len(samplers)
	all := make([]uint16, samples*most)
	readers := make([][]uint16, samples) // of each sample
	for id := range readers {
		readers[id] = all[id*most : id*most : (id+1)*most]
	}
	var order []draw.SampleID // by first draw
	for epoch := range epochs {
		for _, sampler := range samplers {
			for j, id := range sampler.Draw(epoch, nil).IDs {
				if len(readers[id]) == 0 {
					order = append(order, id)
				}
				readers[id] = append(readers[id], uint16(j%(ranks*trainers)/trainers))
			}
		}
	}
	var byCount [][]nopfsAccess
	for _, id := range order {
		for r := readers[id]; len(r) > 0; {
			rank, n := slices.Min(r), len(r)
			r = slices.DeleteFunc(r, func(other uint16) bool { return other == rank })
			for len(byCount) <= n-len(r) {
				byCount = append(byCount, nil)
			}
			byCount[n-len(r)] = append(byCount[n-len(r)], nopfsAccess{id, int32(rank), n - len(r)})
		}
	}
	slices.Reverse(byCount)
	return slices.Concat(byCount...)
}

// nopfsPlace places samples for each worker separately: in the order of its accesses, samples fill
// its memory. It returns the homes of each sample, which are workers, starting with the one that
// reads it most; several workers may choose the same sample. room[rank] is a worker's memory in
// bytes; nopfsPlace reduces it to what is left.
//
// Source: Dryden et al., SC 2021, the caching policy; a worker knows nothing of what others choose.
// Differs: the published code closes a memory at the first sample that does not fit; here smaller
// ones still go in.
func nopfsPlace(
	accesses []nopfsAccess, samples int, room []int64, size func(draw.SampleID) int64,
) [][]int32 {
	homes := make([][]int32, samples)
	for _, a := range accesses {
		if size(a.id) <= room[a.rank] {
			homes[a.id] = append(homes[a.id], a.rank)
			room[a.rank] -= size(a.id)
		}
	}
	return homes
}
