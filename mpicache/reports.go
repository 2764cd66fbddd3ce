package mpicache

import (
	"cmp"
	"math"

	"rankpool/scheduler"
)

// finishRecord in place of a batch number says that the trainer went on to the epoch.
const finishRecord = math.MaxUint32

// outboxBytes is when reports leave without waiting for the tick.
const outboxBytes = 64 << 10

// onReport takes a report of a trainer here and passes it on.
func (s *stream) onReport(trainer, epoch, batch int, losses []float32) {
	s.locked(func() {
		if s.stager != nil && !s.planner.weighted() {
			return
		}
		s.outRecord(trainer, epoch, uint32(batch), losses)
		s.take(report{trainer, epoch, batch, losses})
	})
}

// take gives a report to the ledger, or keeps it until its epoch is opened.
func (s *stream) take(r report) {
	p := &s.planner
	if p.ledger == nil || !p.ledger.Opened(r.epoch) {
		p.held = append(p.held, r)
		return
	}
	s.apply(r)
	s.fold()
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
	var rest []report
	newest := p.opened[len(p.opened)-1]
	for _, r := range p.held {
		if p.ledger.Opened(r.epoch) {
			s.apply(r)
		} else if r.epoch > newest {
			rest = append(rest, r)
		}
	}
	p.held = rest
	for trainer, epoch := range p.finish {
		p.ledger.Finish(trainer, epoch)
	}
	s.fold()
}

// outRecord adds a record for the other ranks: u32 trainer, u32 epoch, u32 batch or finishRecord, u32 n, f32 loss[n].
func (s *stream) outRecord(trainer, epoch int, batch uint32, losses []float32) {
	if s.node.cfg.Transport.Size() == 1 {
		return
	}
	b := s.planner.outbox
	for _, v := range []uint32{uint32(trainer), uint32(epoch), batch, uint32(len(losses))} {
		b = le.AppendUint32(b, v)
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

// onReports takes the records of another rank.
func (s *stream) onReports(body []byte) {
	s.locked(func() {
		c := cursor{b: body}
		for len(c.b) > 0 {
			trainer, epoch, batch, n := int(c.u32()), int(c.u32()), c.u32(), c.u32()
			losses := c.f32s(n)
			if c.err != nil {
				s.node.cfg.Log.Error("reports that make no sense")
				return
			}
			if s.stager != nil && !s.planner.weighted() {
				if batch != finishRecord {
					continue
				}
			}
			if batch != finishRecord {
				s.take(report{trainer, epoch, int(batch), losses})
				continue
			}
			s.finishEpochs(trainer, epoch)
			if s.stager != nil && len(s.agreed.locals(s.node.cfg.Transport.Rank())) == 0 {
				s.want(epoch, 0) // no trainer here will: follow the others
			}
		}
	})
}

// restore makes the ledger when the first epoch is wanted: from what this job left in the rank's folder, else from the
// state file, else anew. It returns the epoch to plan first, from which the ledger gets to the wanted one.
func (s *stream) restore(epoch int) int {
	p := &s.planner
	spec := s.agreed.spec
	scorer, err := scheduler.NewScorer(cmp.Or(s.node.cfg.Scorer, scheduler.DefaultScorer(spec.Sampler)))
	if err != nil {
		panic("mpicache: " + err.Error())
	}
	if snap := s.readState(epoch); snap != nil {
		p.ledger = scheduler.RestoreLedger(scorer, snap, spec.World, true)
		p.restored = snap
		p.cut, p.haveCut = snap.Scores, true
		return snap.Epoch
	}
	if snap := s.readStateFile(); snap != nil {
		p.ledger = scheduler.RestoreLedger(scorer, snap, spec.World, false)
		if snap.Epoch == epoch || snap.Epoch == epoch-1 {
			p.restored = snap
			p.cut, p.haveCut = snap.Scores, true
			return snap.Epoch
		}
		s.node.cfg.Log.Warn("the importance state is of another epoch; training begins with its scores", "data", s.data.Name, "state", snap.Epoch, "epoch", epoch)
		p.ledger = scheduler.NewLedger(scorer, p.ledger.FoldAll())
		return epoch
	}
	if epoch > 0 {
		s.node.cfg.Log.Warn("there is no importance state for this epoch; training begins with equal scores", "data", s.data.Name, "epoch", epoch)
	}
	p.ledger = scheduler.NewLedger(scorer, scheduler.EqualScores(s.data.Samples, scorer.Initial(spec.BatchSize*spec.World)))
	return epoch
}
