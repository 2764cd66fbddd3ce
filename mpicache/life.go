package mpicache

import (
	"reflect"

	"rankpool/mpicache/slab"
	"rankpool/scheduler"
)

// A stream may be trained more than once: trainers load a checkpoint in mid-training, or torchrun starts them again, or
// another training comes to the same ranks. Each of these is a life. When all trainers have begun a new one, what was known
// of the one before, most of all its importance, is forgotten, on all ranks, and the first plan is decided on as at the
// start. Until then a trainer that begins anew waits.

// joined is how a trainer takes part in the life that is trained.
type joined struct {
	life       uint64
	turn       uint32
	begins     bool // it had no plan of it yet when it came
	first      bool // no life of this trainer was before
	checkpoint *Checkpoint
}

// newLife reports whether a trainer asks for its first plan in another life than the one that is trained.
func (s *stream) newLife(trainer int) bool {
	t := s.agreed.trainings[trainer]
	j, ok := s.planner.joined[trainer]
	return t != nil && ok && (j.life != t.Life || j.turn != t.Turn) && s.planner.ledger != nil
}

// join notes that a trainer takes part. Those that begin together must go on from the same checkpoint.
func (s *stream) join(trainer int) error {
	t := s.agreed.trainings[trainer]
	if t == nil {
		return nil
	}
	was, again := s.planner.joined[trainer]
	if again && was.life == t.Life && was.turn == t.Turn {
		return nil
	}
	j := joined{t.Life, t.Turn, len(t.Planned) == 0, !again, t.Checkpoint}
	for u, other := range s.planner.joined {
		together := j.begins && j.first && other.begins && other.first
		if together && !reflect.DeepEqual(j.checkpoint, other.checkpoint) {
			return differentCheckpoints(u, other.checkpoint, trainer, j.checkpoint)
		}
	}
	s.planner.joined[trainer] = j
	return nil
}

// beginAnew notes that a trainer begins a new life at a place, and begins it when all do.
func (s *stream) beginAnew(trainer int, at place) {
	p := &s.planner
	p.anew[trainer] = at
	if len(p.anew) < len(s.agreed.world) {
		return
	}
	for _, other := range p.anew {
		at.epoch, at.batch = max(at.epoch, other.epoch), min(at.batch, other.batch)
	}
	s.forgetLife()
	for t := range s.agreed.world {
		if err := s.join(t); err != nil {
			s.refusePlans(err)
			return
		}
		s.finishEpochs(t, at)
	}
	s.want(at.epoch, at.batch)
}

// forgetLife forgets all that is known of the training but its plans, which the stager keeps as long as it needs them.
func (s *stream) forgetLife() {
	p := &s.planner
	cfg, making, moved, waiting, outbox, saves, sources := p.cfg, p.making, p.moved, p.waiting, p.outbox, p.saves, p.sources
	*p = planner{}
	p.init()
	p.cfg, p.making, p.moved, p.waiting, p.outbox, p.saves, p.sources = cfg, making, moved, waiting, outbox, saves, sources
	p.placement = s.newPlacement()
	s.nextGeneration()
}

// nextGeneration forgets what plans were made from: the same epochs are planned again from something else.
func (s *stream) nextGeneration() {
	clear(s.planner.kept)
	s.inFolder(func() { s.forgetStates(func(int) bool { return true }) })
	for _, err := range s.planner.sources.next() {
		s.endTraining(err)
	}
}

// newPlacement returns the placement of samples for a training that begins.
func (s *stream) newPlacement() *scheduler.Placement {
	if s.node.cfg.Policy != "clairvoyant" {
		return nil
	}
	size := func(id scheduler.SampleID) int64 { return slab.Footprint(s.data.Size(id)) }
	return scheduler.PlacementFor(s.planner.cfg.Sampler, s.data.Samples, s.data.keptBytes(), size)
}
