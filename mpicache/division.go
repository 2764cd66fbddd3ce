package mpicache

import (
	"slices"

	"github.com/dustin/go-humanize"

	"rankpool/scheduler/stager"
)

// A rank divides its memory among data sets, and what stays of each among its trainings, by what
// the cache is worth to the trainings on this rank (stager.Divide, stager.Weights). Draws do
// not depend on it, and neither does what a system that chooses by epoch serves: its book stays as
// it was at the start.

// gains returns what the cache is worth to each training on the data set, by lane; -1: unknown.
func (s *samples) gains() (lanes []int, gains []float64) {
	for _, l := range s.streams {
		if l.began {
			lanes = append(lanes, l.lane)
			gains = append(gains, l.benefit.Gain(len(l.setup.world)))
		}
	}
	return lanes, gains
}

// weigh gives the stager each training's weight, and requests that memory be divided again. It is
// called when a training begins or ends, and when its benefit is known.
func (s *samples) weigh() {
	lanes, gains := s.gains()
	for i, weight := range stager.Weights(gains) {
		if s.weights[lanes[i]] != weight {
			s.weights[lanes[i]] = weight
			s.step(stager.Weighed{Lane: lanes[i], Weight: weight})
		}
	}
	s.node.shrinker.divide.Store(true)
}

// claim returns the data set's claim to the memory of this rank, without its part by size. A data
// set that has no trainings, or a training with an unknown benefit, keeps that part.
func (s *samples) claim() stager.Claim {
	c := stager.Claim{
		WholeBytes: max(s.ownBytes, s.data.PartitionBytes[s.node.cfg.Transport.Rank()]),
	}
	s.locked(func() {
		_, gains := s.gains()
		if len(gains) == 0 || slices.Min(gains) < 0 {
			c.Gain = -1
			return
		}
		for _, g := range gains {
			c.Gain += g
		}
	})
	return c
}

// partitions divides the slab's memory for residents among the data sets.
func (h *shrinker) partitions() []int64 {
	n, share, total := h.node, h.share(), 0.0
	var claims []stager.Claim
	for i, s := range n.streams {
		c := s.claim()
		c.EvenBytes = int64(share * float64(h.even[i]))
		total += share * float64(h.even[i])
		claims = append(claims, c)
	}
	return stager.Divide(claims, int64(total), n.cfg.GiveUnused)
}

// share returns the share of the parts by size that is left after the node ran short of memory.
func (h *shrinker) share() float64 {
	if cache := h.evenOf - h.leastBytes; cache > 0 {
		return float64(h.nowBytes-h.leastBytes) / float64(cache)
	}
	return 0
}

// divideAnew divides memory by what is known about the trainings now. With Config.GiveUnused it
// returns memory that no training gains from to the system.
func (h *shrinker) divideAnew() {
	n := h.node
	parts, sum := h.partitions(), int64(0)
	for _, bytes := range parts {
		sum += bytes
	}
	to := h.leastBytes + sum + sum/shrinkSlack
	if n.cfg.GiveUnused && h.nowBytes-to >= max(h.fullBytes/shrinkShare, 1) {
		n.cfg.Log.Warn("no training gains from this memory: the cache releases it",
			"slab before", humanize.IBytes(uint64(h.nowBytes)), "slab now", humanize.IBytes(uint64(to)))
		h.even, h.evenOf = parts, to
		h.shrinkTo(to)
		return
	}
	// shrink partitions first, so that there is room for those that grow
	for _, grows := range []bool{false, true} {
		for i, s := range n.streams {
			if grows != (parts[i] > s.capacity()) || parts[i] == s.capacity() {
				continue
			}
			n.cfg.Log.Info("memory is divided by what the cache is worth", "data", s.data.Name,
				"before", humanize.IBytes(uint64(s.capacity())), "now", humanize.IBytes(uint64(parts[i])))
			s.shrink(h.nowBytes, parts[i])
		}
	}
}

// shrinkSlack is the divisor of the residents' bytes that gives the extra memory for the gaps
// between samples.
const shrinkSlack = 16

// capacity returns the current size of the partition.
func (s *samples) capacity() (bytes int64) {
	s.locked(func() { bytes = s.capacityBytes })
	return bytes
}
