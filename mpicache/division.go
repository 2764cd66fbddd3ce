package mpicache

import (
	"github.com/dustin/go-humanize"

	"rankpool/scheduler/stager"
)

// A rank divides its memory among data sets, and what stays of each among its trainings, by what
// the cache is worth to the trainings on this rank (stager.Divide, stager.Weights). Draws do
// not depend on it, and neither does what a system that chooses by epoch serves: its book stays as
// it was at the start.

// partitions divides the slab's memory for residents among the data sets.
func (h *shrinker) partitions() []int64 {
	n, share, total := h.node, h.share(), 0.0
	var claims []stager.Claim
	for i, s := range n.rank.Sets {
		c := stager.Claim{
			WholeBytes: max(s.Store().OwnBytes(), s.Data().PartitionBytes[n.cfg.Transport.Rank()]),
			EvenBytes:  int64(share * float64(h.even[i])), Gain: h.gain(i),
		}
		total += share * float64(h.even[i])
		claims = append(claims, c)
	}
	return stager.Divide(claims, int64(total))
}

// share returns the share of the parts by size that is left after the node ran short of memory.
func (h *shrinker) share() float64 {
	if cache := h.fullBytes - h.leastBytes; cache > 0 {
		return float64(h.nowBytes-h.leastBytes) / float64(cache)
	}
	return 0
}

// divideAnew divides memory by what is known about the trainings now.
func (h *shrinker) divideAnew() {
	n, parts := h.node, h.partitions()
	// shrink partitions first, so that there is room for those that grow
	for _, grows := range []bool{false, true} {
		for i, s := range n.rank.Sets {
			now := s.Store().Capacity()
			if grows != (parts[i] > now) || parts[i] == now {
				continue
			}
			n.cfg.Log.Info("memory is divided by what the cache is worth", "data", s.Data().Name,
				"before", humanize.IBytes(uint64(now)), "now", humanize.IBytes(uint64(parts[i])))
			s.Store().Shrink(h.nowBytes, parts[i])
		}
	}
}
