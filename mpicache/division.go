package mpicache

import (
	"slices"

	"github.com/dustin/go-humanize"

	"rankpool/scheduler"
)

// A rank divides its memory among data sets, and what stays of each among its trainings, by what
// the cache is worth to them there (scheduler.Divide, scheduler.Weights). The draws, and what a
// system that chooses by epoch serves, do not depend on it: its book is that of the start.

// gains returns what the cache is worth to each training on the data set, by lane; -1: unknown.
func (s *samples) gains() (lanes []int, gains []float64) {
	for _, l := range s.streams {
		if l.began {
			lanes = append(lanes, l.lane)
			gains = append(gains, l.benefit.Gain(len(l.setup.World)))
		}
	}
	return lanes, gains
}

// weigh queues what memory is worth to each training for the stager, and has memory divided anew.
// It is called when a training begins or ends, and when its benefit is known.
func (s *samples) weigh() {
	lanes, gains := s.gains()
	for i, weight := range scheduler.Weights(gains) {
		if s.weights[lanes[i]] != weight {
			s.weights[lanes[i]] = weight
			s.queue = append(s.queue, scheduler.Weighed{Lane: lanes[i], Weight: weight})
		}
	}
	s.node.shrinker.divide.Store(true)
}

// weighNow is weigh where no events are being handled.
func (s *samples) weighNow() {
	if s.weigh(); !s.closed {
		s.drain()
	}
}

// claim is the data set's claim to the memory of this rank, beside its part by size. One without
// trainings keeps that part.
func (s *samples) claim() scheduler.Claim {
	c := scheduler.Claim{
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

// partitions divides what the slab has for residents among the data sets.
func (h *shrinker) partitions() []int64 {
	n, share, total := h.node, h.share(), 0.0
	var claims []scheduler.Claim
	for i, s := range n.streams {
		c := s.claim()
		c.EvenBytes = int64(share * float64(h.even[i]))
		total += share * float64(h.even[i])
		claims = append(claims, c)
	}
	return scheduler.Divide(claims, int64(total), n.cfg.GiveUnused)
}

// share is the share of the parts by size that is left since the node ran short of memory.
func (h *shrinker) share() float64 {
	if cache := h.evenOf - h.leastBytes; cache > 0 {
		return float64(h.nowBytes-h.leastBytes) / float64(cache)
	}
	return 0
}

// divideAnew divides the partitions by what is known of the trainings now, and returns memory that
// none of them gains from to the system, if it is to.
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
	// those that get less first, so that there is room for the others
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

// shrinkSlack is the part of the residents' bytes that the slab has besides, for the gaps between
// samples.
const shrinkSlack = 16

// capacity is the size of the partition now.
func (s *samples) capacity() (bytes int64) {
	s.locked(func() { bytes = s.capacityBytes })
	return bytes
}
