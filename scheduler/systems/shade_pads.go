package systems

import (
	"cmp"
	"slices"

	"rankpool/scheduler/draw"
)

// PADS draws for each process separately. It draws a list of as many entries as there are samples,
// in proportion to their scores; cuts the list to the most repeated entries, as many as the
// process's share of an epoch; and repeats those of them that are in memory, in place of others.
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, "Priority-based Adaptive Data Sampling"; the
// authors' ShadeSampler (pads_sort, score_based_rep, prepare_hits). Differs: their processes score
// only what they trained on, and so each draws from its own scores; here all know all scores. They
// put the repeated samples in memory before the others, each group in random order; here a
// process's whole part is in random order.

// padsCut returns the n most repeated entries of a list, the most repeated first. Among samples
// repeated equally often, the most important comes first, as in the paper's example, then the lower
// id.
func padsCut(list []draw.SampleID, scores []float32, n int) []draw.SampleID {
	times := make([]int32, len(scores))
	for _, id := range list {
		times[id]++
	}
	cut := slices.Clone(list)
	slices.SortFunc(cut, func(a, b draw.SampleID) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(scores[b], scores[a]),
			cmp.Compare(a, b))
	})
	return cut[:min(n, len(cut))]
}

// padsStride returns a process's n entries of a list when no part is preferred: those at places
// process, process + processes, …. As in DistributedSampler, a list that is too short starts again.
func padsStride(list []draw.SampleID, process, processes, n int) []draw.SampleID {
	part := make([]draw.SampleID, n)
	for k := range part {
		part[k] = list[(process+k*processes)%len(list)]
	}
	return part
}

// padsRepeat makes the entries of part that are in memory come `times` as often, up to the share
// `most` of part, in place of others. If their share is larger already, it repeats none.
func padsRepeat(
	part []draw.SampleID, in func(draw.SampleID) bool, times, most float64,
) []draw.SampleID {
	var here, others []draw.SampleID
	for _, id := range part {
		if in(id) {
			here = append(here, id)
		} else {
			others = append(others, id)
		}
	}
	n := float64(len(part))
	repeated := int(
		max(min(float64(times*float64(len(here))), float64(most*n), n), float64(len(here))))
	result := make([]draw.SampleID, 0, len(part))
	for k := range repeated {
		result = append(result, here[k%len(here)])
	}
	return append(result, others[:len(part)-repeated]...)
}

// padsSeed returns the seed of a process; the first process has the job's seed.
func padsSeed(seed int64, process int) int64 {
	if process == 0 {
		return seed
	}
	r := newRandom(seed)
	r.state ^= uint64(process) << 32
	return int64(r.next())
}
