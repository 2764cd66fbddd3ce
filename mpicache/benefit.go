package mpicache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"rankpool/mpicache/stats"
	"rankpool/scheduler/stager"
)

// A rank measures what the cache is worth to each training where it matters: when several trainings
// or data sets share memory that does not hold all of their samples, or when the user asks for it.
// stager.Benefit decides when and how; the rank provides the clock, and reads the samples again.

// Benefit selects when the benefit of trainings is measured.
type Benefit uint8

// The values of Config.Benefit.
const (
	BenefitAuto   Benefit = iota // when there is memory to divide
	BenefitAlways                // for every training
	BenefitNever
)

// Benefits are the names of these values.
var Benefits = []string{"auto", "always", "never"}

// measures reports whether to measure the benefit of trainings now.
func (n *Node) measures() bool {
	switch n.cfg.Benefit {
	case BenefitAlways:
		return true
	case BenefitNever:
		return false
	}
	rank := n.cfg.Transport.Rank()
	return n.lanes.Load() > 1 && slices.ContainsFunc(n.streams, func(s *stream) bool {
		return s.ownBytes > s.data.PartitionBytes[rank] // this rank has no room for all it owns
	})
}

var errNoRoom = errors.New("mpicache: no room for a sample")

// reread reads a sample into separate memory, for which the window has room, and then frees it.
func (s *samples) reread(c stager.Read) {
	size := s.data.Size(c.ID)
	off, ok := s.node.alloc(size)
	if !ok {
		s.step(stager.Reread{ID: c.ID, Err: errNoRoom})
		return
	}
	s.reads.Add(1)
	s.data.Storage.Fetch(c.ID, s.node.slab.Bytes(off, size), c.Need, func(err error) {
		s.locked(func() {
			s.node.free(off)
			s.freed = true
			s.step(stager.Reread{ID: c.ID, Err: err})
		})
		s.reads.Done()
	})
}

// timed notes that a trainer's part of a batch is complete. When the benefit is known, the rank of
// the first trainer logs it.
func (s *stream) timed(c stager.Timed) {
	if !s.benefit.Ready(c.Epoch, c.Batch, s.node.now().Sub(s.node.started)) {
		return
	}
	s.weigh()
	if int(s.setup.world[0]) != s.node.cfg.Transport.Rank() {
		return
	}
	m, log := s.benefit.Measured(), s.node.cfg.Log
	args := []any{
		"data", s.data.Name, "training", cmp.Or(s.job, "-"), "epoch", m.Epoch,
		"benefit", fmt.Sprintf("%.2f", m.Ratio()),
		"batch", m.With.Round(time.Microsecond), "without cache", m.Without.Round(time.Microsecond),
	}
	s.later(func() {
		if m.Gains() {
			log.Info("measured what the cache is worth to a training", args...)
			return
		}
		log.Warn("a training gains nothing from the cache: a batch takes as long without it", args...)
	})
}

// measured returns what was measured in an epoch, or with -1 what was measured last.
func (s *stream) measured(epoch int) stats.Benefit {
	m := s.benefit.Measured()
	if epoch >= 0 && epoch != m.Epoch {
		return stats.Benefit{}
	}
	return stats.Benefit{
		BatchSeconds: m.With.Seconds(), UncachedBatchSeconds: m.Without.Seconds(),
	}
}
