package mpicache

import (
	"math"
	"runtime/debug"
	"slices"
	"time"

	"rankpool/scheduler"
)

// planner is when plans are made, and from which scores. A plan is made for the epoch that a trainer wants, and ahead
// of time for the one after, as soon as the scores up to the cut are there.
type planner struct {
	cfg      scheduler.PlanConfig
	ledger   *scheduler.Ledger // nil until the first epoch is wanted, and if the sampler has no use for scores
	restored *scheduler.Snapshot
	cut      []float32 // scores for the plan after the newest epoch; they do not change
	haveCut  bool
	making   bool
	opened   []int     // epochs that training is or was in, the newest last, at most two
	base     []float32 // scores that the newest epoch's plan was made from
	// placement gives samples their owners; nil when a hash does. outlook is what it was when cut was taken.
	placement *scheduler.Placement
	outlook   *scheduler.Outlook
	ahead     *aheadPlan             // made before it was wanted
	want      int                    // an epoch that is wanted and not opened, or noEpoch
	from      int                    // its first batch
	finish    map[int]int            // by trainer: the epoch it went on to
	wishes    map[int]place          // by trainer: where it wants to go, if it may not yet
	held      []report               // reports of epochs that are not opened yet
	heldBy    map[int]map[place]bool // of which batches, by trainer
	outbox    []byte                 // records for the other ranks
	waiting   []waitingPlan          // PLANs without reply
	saves     []waitingSave          // SAVEs without reply
	// checkpointed: training says when to save, and the state file belongs to its checkpoint.
	checkpointed bool
	moved        map[int]time.Time // by epoch: when the last local trainer left it
}

const noEpoch = math.MinInt

type aheadPlan struct {
	plan *scheduler.Plan
	base []float32
}

// report is what a trainer reported of one global batch.
type report struct {
	trainer, epoch, batch int
	losses                []float32
}

type waitingPlan struct {
	conn    *conn
	ticket  uint32
	trainer int
	epoch   int
}

func (p *planner) init() {
	p.want = noEpoch
	p.finish, p.wishes, p.heldBy = map[int]int{}, map[int]place{}, map[int]map[place]bool{}
	p.moved = map[int]time.Time{}
}

// knows reports whether epoch is one that training is or was in a moment ago, and its plan is still there.
func (s *stream) knows(epoch int) bool {
	return slices.Contains(s.planner.opened, epoch) && s.stager.Knows(epoch)
}

func (p *planner) weighted() bool { return p.cfg.Sampler.Weighted() }

// onPlan answers PLAN when the plan is there. Asking for an epoch's plan says that the trainer's reports of earlier
// epochs are final.
func (s *stream) onPlan(c *conn, ticket uint32, f placeFrame) (err error) {
	s.locked(func() {
		if err = s.checkPlan(c, f); err == nil {
			err = s.sit(c, true)
		}
		if err != nil {
			return
		}
		trainer, epoch := int(c.trainer), int(f.epoch)
		s.move(trainer, epoch, int(f.batch))
		if _, waits := s.planner.wishes[trainer]; waits && s.stager != nil && !s.planner.weighted() {
			cfg := s.planner.cfg
			cfg.Samples = 0 // nothing is staged by it
			err = s.node.planBeside(c, ticket, cfg, epoch, trainer)
			return
		}
		s.planner.waiting = append(s.planner.waiting, waitingPlan{c, ticket, trainer, epoch})
		s.answerPlans()
	})
	return err
}

// want has epoch planned, beginning at batch from, unless it is.
func (s *stream) want(epoch, from int) {
	p := &s.planner
	if s.knows(epoch) {
		return
	}
	if s.stager != nil && len(p.opened) > 0 && epoch == p.opened[len(p.opened)-1]+1 {
		from = 0 // who comes first may be ahead of the others
	}
	if p.want != epoch {
		p.want, p.from = epoch, from
	}
	p.from = min(p.from, from)
	s.plan()
}

// plan makes the plan that is due, if its scores are there: the one that is wanted, else the one after the newest.
func (s *stream) plan() {
	p := &s.planner
	if s.stager == nil || p.making {
		return
	}
	epoch := p.want
	if epoch == noEpoch {
		if len(p.opened) == 0 || p.ahead != nil {
			return
		}
		epoch = p.opened[len(p.opened)-1] + 1
	}
	if p.weighted() && p.ledger == nil {
		epoch = s.restore(epoch)
	}
	if p.weighted() && !p.haveCut {
		if !p.ledger.Ready() {
			return
		}
		p.cut, p.haveCut = p.ledger.Take(), true
		p.outlook = nil
	}
	if p.placement != nil && p.outlook == nil {
		p.outlook = p.placement.Outlook()
	}
	if a := p.ahead; a != nil && a.plan.Epoch == epoch {
		s.install(a.plan, a.base)
		return
	}
	p.making = true
	cfg, scores := p.cfg, p.cut
	if p.placement != nil {
		cfg.Place = p.outlook.Place
	}
	go func() {
		plan := scheduler.NewPlan(cfg, epoch, scores)
		s.locked(func() { s.made(plan, scores) })
	}()
}

// made takes a new plan: into use if it is wanted, else it waits and its first samples are staged.
func (s *stream) made(plan *scheduler.Plan, base []float32) {
	p := &s.planner
	p.making = false
	replaying := p.restored != nil && p.restored.Epoch == plan.Epoch
	if plan.Epoch == p.want || replaying {
		s.install(plan, base)
		return
	}
	if p.want == noEpoch {
		p.ahead = &aheadPlan{plan, base}
		s.tape.Base(base)
		s.step(scheduler.Planned{Plan: plan})
		return
	}
	s.plan() // another epoch is wanted meanwhile
}

// install makes plan the newest epoch: reports refer to it from now on, and trainers get it.
func (s *stream) install(plan *scheduler.Plan, base []float32) {
	p := &s.planner
	from, trained := 0, plan.Batches()
	if plan.Epoch == p.want {
		from = min(p.from, plan.Batches()) // an epoch may have fewer than the most
		trained = from
		p.want = noEpoch
	}
	if p.ahead == nil || p.ahead.plan != plan {
		s.tape.Base(base)
		s.step(scheduler.Planned{Plan: plan, From: from})
	}
	p.ahead = nil
	p.opened = append(p.opened, plan.Epoch)
	delete(s.closedEpochs, plan.Epoch) // it may be trained once more
	p.opened = p.opened[max(0, len(p.opened)-2):]
	p.base, p.cut, p.haveCut, p.outlook = base, nil, false, nil
	if p.weighted() {
		p.ledger.Open(plan)
		if p.placement != nil {
			p.placement.Open(plan)
		}
		restored := p.restored != nil && p.restored.Epoch == plan.Epoch
		if restored {
			p.ledger.Resume(p.restored, trained)
		}
		p.restored = nil
		s.step(p.ledger.Scored(scheduler.Folded{Epoch: -1})) // after Open, which may have folded what was left of an old epoch
		s.writeStates(restored)
		s.recordImportance(plan.Epoch, base)
		s.applyHeld()
	}
	s.answerPlans()
	s.grant()
	s.plan()
	go debug.FreeOSMemory() // what making a plan took, once an epoch
}

// answerPlans answers every PLAN whose plan is there.
func (s *stream) answerPlans() {
	rest := s.planner.waiting[:0]
	for _, w := range s.planner.waiting {
		if plan := s.planOf(w.epoch); plan != nil {
			s.reply(w.conn, appendPlan(nil, w.ticket, plan, w.trainer))
		} else {
			rest = append(rest, w)
		}
	}
	s.planner.waiting = rest
}

func (s *stream) planOf(epoch int) *scheduler.Plan {
	if s.stager == nil || !s.knows(epoch) {
		return nil
	}
	return s.stager.Plan(epoch)
}

// forget lets go of what a client that is gone waits for.
func (s *stream) forget(c *conn) {
	s.locked(func() {
		p := &s.planner
		p.waiting = slices.DeleteFunc(p.waiting, func(w waitingPlan) bool { return w.conn == c })
		p.saves = slices.DeleteFunc(p.saves, func(w waitingSave) bool { return w.conn == c })
	})
}

func (s *stream) failPlans(err error) {
	for _, w := range s.planner.waiting {
		s.reply(w.conn, appendError(nil, w.ticket, codeRequest, err.Error()))
	}
	s.planner.waiting = nil
}

// finishEpochs notes that trainer went on to epoch.
func (s *stream) finishEpochs(trainer, epoch int) {
	p := &s.planner
	p.finish[trainer] = epoch
	if p.ledger != nil {
		p.ledger.Finish(trainer, epoch)
		s.fold()
	}
	s.noteMoved()
}

// fold folds what is final, refreshes predictions, and goes on to plan when the cut is reached.
func (s *stream) fold() {
	p := &s.planner
	ready := p.ledger.Fold(func(f scheduler.Folded) {
		if p.placement != nil {
			p.placement.Fold(p.ledger.Scored(f))
		}
		s.step(p.ledger.Scored(f))
	})
	if ready && !p.haveCut {
		s.plan()
	}
	s.answerSaves()
}

// tick answers SAVEs that have waited long enough.
func (p *planner) tick(s *stream, now time.Time) {
	if len(p.saves) > 0 && now.After(p.saves[0].deadline) {
		s.answerSaves()
	}
}
