package training

import (
	"cmp"
	"fmt"
	"time"

	"rankpool/mpicache/stats"
	"rankpool/scheduler/stager"
)

// A rank measures what the cache is worth to each training where it matters: when several trainings
// or data sets share memory that does not hold all of their samples, or when the user asks for it.
// stager.Benefit decides when and how; the rank provides the clock, and reads the samples again.

// timed notes that a trainer's part of a batch is complete. When the benefit is known, the rank of
// the first trainer logs it.
func (s *Training) timed(c stager.Timed) {
	if !s.benefit.Ready(c.Epoch, c.Batch, s.rank.Now().Sub(s.rank.Started)) {
		return
	}
	s.set.weigh()
	if int(s.setup.world[0]) != s.rank.Transport.Rank() {
		return
	}
	m, log := s.benefit.Measured(), s.rank.Log
	args := []any{
		"data", s.data.Name, "training", cmp.Or(s.job, "-"), "epoch", m.Epoch,
		"benefit", fmt.Sprintf("%.2f", m.Ratio()),
		"batch", m.With.Round(time.Microsecond), "without cache", m.Without.Round(time.Microsecond),
	}
	s.store.Later(func() {
		if m.Gains() {
			log.Info("measured what the cache is worth to a training", args...)
			return
		}
		log.Warn("a training gains nothing from the cache: a batch takes as long without it", args...)
	})
}

// Measured returns what was measured in an epoch, or with -1 what was measured last.
func (s *Training) Measured(epoch int) stats.Benefit {
	m := s.benefit.Measured()
	if epoch >= 0 && epoch != m.Epoch {
		return stats.Benefit{}
	}
	return stats.Benefit{
		BatchSeconds: m.With.Seconds(), UncachedBatchSeconds: m.Without.Seconds(),
	}
}
