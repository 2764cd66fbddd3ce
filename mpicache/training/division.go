package training

import (
	"slices"

	"rankpool/mpicache/stats"
	"rankpool/scheduler/stager"
)

// gains returns what the cache is worth to each training on the data set, by lane; -1: unknown.
func (s *Set) gains() (lanes []int, gains []float64) {
	for _, l := range s.list {
		if l.began {
			lanes = append(lanes, l.lane)
			gains = append(gains, l.benefit.Gain(len(l.setup.world)))
		}
	}
	return lanes, gains
}

// weigh gives the stager each training's weight, and requests that memory be divided again. It is
// called when a training begins or ends, and when its benefit is known.
func (s *Set) weigh() {
	lanes, gains := s.gains()
	for i, weight := range stager.Weights(gains) {
		if s.weights[lanes[i]] != weight {
			s.weights[lanes[i]] = weight
			s.store.Step(stager.Weighed{Lane: lanes[i], Weight: weight})
		}
	}
	s.rank.Divide()
}

// Gain returns what the cache is worth to all trainings; -1: there are none, or the benefit of one
// is unknown. It takes the lock.
func (s *Set) Gain() (gain float64) {
	s.store.Locked(func() {
		_, gains := s.gains()
		if len(gains) == 0 || slices.Min(gains) < 0 {
			gain = -1
			return
		}
		for _, g := range gains {
			gain += g
		}
	})
	return gain
}

// Measure adds what is in memory to st, and the counts of ended trainings to sum. It takes the
// lock.
func (s *Set) Measure(st *stats.Reading, sum *stats.Counts) {
	s.store.Locked(func() { sum.Add(s.gone) })
	s.store.Measure(st)
}
