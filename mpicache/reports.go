package mpicache

import (
	"cmp"
	"math"

	"rankpool/scheduler"
)

// Records of trainers for the other ranks: u32 what, u32 trainer, u32 epoch, u32 batch, u32 n, f32 loss[n].
const (
	recordReport = 1 // losses of a batch
	recordFinish = 2 // the trainer went on to the epoch, from the batch on
	recordWish   = 3 // it wants to, to the batch, and waits for the others
	recordSave   = 4 // it saves a checkpoint of the place before the batch
	recordAnew   = 5 // it begins another life there, and waits for the others
)

// outboxBytes is when reports leave without waiting for the tick.
const outboxBytes = 64 << 10

// onReport takes a report of a trainer here and passes it on, unless it is of an epoch that the trainer has left: its
// reports of that are final.
func (s *stream) onReport(c *conn, f reportFrame) (err error) {
	s.locked(func() {
		if s.stager != nil && !s.planner.weighted() {
			return
		}
		if err = s.checkReport(c, f); err == nil {
			err = s.sit(c, true)
		}
		if err != nil {
			return
		}
		r := report{int(c.trainer), int(f.epoch), int(f.batch), f.losses}
		if at, ok := s.planner.finish[r.trainer]; ok && r.epoch < at.epoch {
			return
		}
		s.outRecord(recordReport, r.trainer, r.epoch, r.batch, r.losses)
		s.take(r)
	})
	return err
}

// take gives a report to the ledger, or keeps it until its epoch is opened, if that can be.
func (s *stream) take(r report) {
	p := &s.planner
	if p.folds() && p.ledger.Opened(r.epoch) {
		s.apply(r)
		s.fold()
	} else if len(p.opened) == 0 || r.epoch > p.opened[len(p.opened)-1] {
		p.hold(r)
	}
}

// hold keeps a report for later. A trainer that connects again, before there is a plan, sends all that it knows once more.
func (p *planner) hold(r report) {
	held, at := p.heldBy[r.trainer], place{r.epoch, r.batch}
	if held == nil {
		held = map[place]bool{}
		p.heldBy[r.trainer] = held
	}
	if !held[at] {
		held[at] = true
		p.held = append(p.held, r)
	}
}

func (s *stream) apply(r report) {
	if err := s.planner.ledger.Report(r.trainer, r.epoch, r.batch, r.losses); err != nil {
		s.node.cfg.Log.Error("a report was not taken", "data", s.data.Name, "error", err)
	}
}

// applyHeld takes up the reports that waited for an epoch, in the order in which they came, and only then what
// trainers have finished.
func (s *stream) applyHeld() {
	p := &s.planner
	held := p.held
	p.held = nil
	clear(p.heldBy)
	newest := p.opened[len(p.opened)-1]
	for _, r := range held {
		if p.ledger.Opened(r.epoch) {
			s.apply(r)
		} else if r.epoch > newest {
			p.hold(r)
		}
	}
	for trainer, at := range p.finish {
		p.ledger.Finish(trainer, at.epoch)
	}
	for trainer := range p.savesAt {
		s.settle(trainer)
	}
	s.fold()
}

// outRecord adds a record for the other ranks.
func (s *stream) outRecord(what, trainer, epoch, batch int, losses []float32) {
	if s.node.cfg.Transport.Size() == 1 {
		return
	}
	b := s.planner.outbox
	for _, v := range []int{what, trainer, epoch, batch, len(losses)} {
		b = le.AppendUint32(b, uint32(v))
	}
	for _, loss := range losses {
		b = le.AppendUint32(b, math.Float32bits(loss))
	}
	s.planner.outbox = b
	if len(b) >= outboxBytes {
		s.flushReports()
	}
}

func (s *stream) flushReports() {
	p := &s.planner
	if len(p.outbox) == 0 {
		return
	}
	t := s.node.cfg.Transport
	msg := append(s.node.message(messageReports, s.index), p.outbox...)
	for r := range t.Size() {
		if r != t.Rank() {
			t.Post(r, msg)
		}
	}
	p.outbox = p.outbox[:0]
}

// onReports takes the records of another rank. What they hold was checked at its door.
func (s *stream) onReports(from int, body []byte) {
	s.locked(func() {
		for c := (cursor{b: body}); len(c.b) > 0; {
			what := c.u32()
			r := report{trainer: int(c.u32()), epoch: int(c.u32()), batch: int(c.u32())}
			r.losses = c.f32s(c.u32())
			if c.err != nil || !s.agreed.has(r.trainer, from) {
				s.node.cfg.Log.Error("reports that make no sense", "from", from)
				return
			}
			s.onRecord(what, r)
		}
	})
}

func (s *stream) onRecord(what uint32, r report) {
	switch what {
	case recordReport:
		if s.stager == nil || s.planner.weighted() {
			s.take(r)
		}
	case recordFinish:
		delete(s.planner.wishes, r.trainer)
		if err := s.join(r.trainer); err != nil { // its rank did not know yet of those here
			s.endTraining(err)
		}
		s.finishEpochs(r.trainer, place{r.epoch, r.batch})
		s.grant()
	case recordWish:
		s.wish(r.trainer, place{r.epoch, r.batch})
	case recordAnew:
		s.beginAnew(r.trainer, place{r.epoch, r.batch})
	case recordSave:
		if s.stager == nil || s.planner.weighted() {
			s.saves(r.trainer, place{r.epoch, r.batch})
		}
	}
}

// scorerName is the scorer that makes importance of what training reports.
func (s *stream) scorerName() string {
	return cmp.Or(s.node.cfg.Scorer, scheduler.DefaultScorer(s.agreed.spec.Sampler))
}

// scorerFor is the scorer that what a spec asks for depends on; "": its draws depend on no scores.
func (s *stream) scorerFor(spec Spec) string {
	sampler, err := scheduler.NewSampler(spec.sampler(s.data.Samples))
	if err != nil || !sampler.Weighted() {
		return ""
	}
	return cmp.Or(s.node.cfg.Scorer, scheduler.DefaultScorer(spec.Sampler))
}

// restore makes the ledger when the first epoch is wanted. It returns the epoch to plan first, from which the ledger gets to
// the wanted one, or an error when training would not go on with the scores that it had.
func (s *stream) restore(epoch, batch int) (first int, err error) {
	p := &s.planner
	if p.refused != nil {
		return 0, p.refused // until trainers say something else
	}
	spec := s.agreed.spec
	scorer, err := scheduler.NewScorer(s.scorerName())
	if err != nil {
		panic("mpicache: " + err.Error())
	}
	equal := func() []float32 {
		return scheduler.EqualScores(s.data.Samples, scorer.Initial(spec.BatchSize*spec.World))
	}
	from, err := s.origin(epoch, batch, equal)
	if err != nil {
		return 0, err
	}
	if from.warning != "" {
		s.node.cfg.Log.Warn(from.warning, "data", s.data.Name)
	}
	switch {
	case from.snap == nil:
		p.ledger = scheduler.NewLedger(scorer, equal())
		return epoch, nil
	case from.alone:
		p.ledger = scheduler.NewLedger(scorer, scheduler.RestoreLedger(scorer, from.snap, spec.World, false).FoldAll())
		return epoch, nil
	}
	p.ledger = scheduler.RestoreLedger(scorer, from.snap, spec.World, from.sameTrainers)
	p.restored = from.snap
	p.cut, p.haveCut = from.snap.Scores, true
	return from.snap.Epoch, nil
}

// origin finds out where the first plan's scores come from.
func (s *stream) origin(epoch, batch int, equal func() []float32) (origin, error) {
	n := need{
		stream: s.streamID(), epoch: epoch, batch: batch, trainings: s.agreed.trainings, equal: equal,
		path: s.userStatePath(), optional: s.node.cfg.StateOptional,
	}
	if n.begun() {
		n.kept = s.readKept()
	} else {
		s.forgetStates(func(int) bool { return true }) // another training has left them
	}
	n.file, n.previous = keptState{err: errNoState}, keptState{err: errNoState}
	if n.path != "" {
		n.file, n.previous = s.readSnapshot(n.path), s.readSnapshot(previousState(n.path))
	} else {
		n.own = []keptState{s.readSnapshot(s.ownStatePath()), s.readSnapshot(previousState(s.ownStatePath()))}
	}
	if c, err := n.checkpoint(); err == nil && c != nil {
		s.planner.checkpointed = true // the state file is that checkpoint's until training makes another one
	}
	return n.decide()
}
