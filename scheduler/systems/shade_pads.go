package systems

import (
	"cmp"
	"slices"

	"rankpool/scheduler"
)

// PADS draws for each process alone: a list of as many draws as there are samples, in proportion to
// their scores; of it the part of the most repeated entries that is the process's share of an
// epoch; and of that, samples in memory several times in the place of others.
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, "Priority-based Adaptive Data Sampling"; the
// authors' ShadeSampler (pads_sort, score_based_rep, prepare_hits). Differs: their processes score
// what they trained on themselves, and so draw from scores of their own; here all know all scores.
// They put what repeats of samples in memory before the others, each in random order; here a
// process's part as a whole is in random order.

// padsCut returns the n most repeated entries of a list, the most repeated first. Of samples that
// are repeated equally often the most important comes first, as in the paper's example, then the
// lower id.
func padsCut(list []scheduler.SampleID, scores []float32, n int) []scheduler.SampleID {
	times := make([]int32, len(scores))
	for _, id := range list {
		times[id]++
	}
	cut := slices.Clone(list)
	slices.SortFunc(cut, func(a, b scheduler.SampleID) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(scores[b], scores[a]),
			cmp.Compare(a, b))
	})
	return cut[:min(n, len(cut))]
}

// padsStride returns a process's entries of a list where no part is preferred: those at place
// process, process + processes, …, n of them. As of DistributedSampler, a list that is too short
// begins again.
func padsStride(list []scheduler.SampleID, process, processes, n int) []scheduler.SampleID {
	part := make([]scheduler.SampleID, n)
	for k := range part {
		part[k] = list[(process+k*processes)%len(list)]
	}
	return part
}

// padsRepeat has the entries of part that are in memory come times as often as they do, up to the
// share most of it, in the place of others; where they have a larger share already, nothing
// changes.
func padsRepeat(
	part []scheduler.SampleID, in func(scheduler.SampleID) bool, times, most float64,
) []scheduler.SampleID {
	var here, others []scheduler.SampleID
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
	result := make([]scheduler.SampleID, 0, len(part))
	for k := range repeated {
		result = append(result, here[k%len(here)])
	}
	return append(result, others[:len(part)-repeated]...)
}

// padsSeed is the seed of a process; that of the first is the job's.
func padsSeed(seed int64, process int) int64 {
	if process == 0 {
		return seed
	}
	r := newRandom(seed)
	r.state ^= uint64(process) << 32
	return int64(r.next())
}
