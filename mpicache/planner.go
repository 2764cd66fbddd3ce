package mpicache

import (
	"fmt"
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
	refused  error     // why there is no ledger; nil: nobody has asked, or there is one
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
	finish    map[int]place          // by trainer: where it went on to
	wishes    map[int]place          // by trainer: where it wants to go, if it may not yet
	held      []report               // reports of epochs that are not opened yet
	heldBy    map[int]map[place]bool // of which batches, by trainer
	outbox    []byte                 // records for the other ranks
	waiting   []waitingPlan          // PLANs without reply
	kept      map[int]bool           // by epoch: what its plan was made from is in the rank's folder
	sources   sources                // the scores that ranks have made plans from
	saves     []waitingSave          // SAVEs without reply
	savesAt   map[int]place          // by trainer: where it has asked to save last
	saved     *savedState            // the newest
	joined    map[int]joined         // by trainer: those that have asked for a plan
	anew      map[int]place          // by trainer: where it begins another life
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
	since   time.Time
}

// missedAfter is for how long a PLAN waits for trainers that have not come until it is said which. The client asks again.
const missedAfter = 10 * time.Second

func (p *planner) init() {
	p.want = noEpoch
	p.finish, p.wishes, p.heldBy = map[int]place{}, map[int]place{}, map[int]map[place]bool{}
	p.moved, p.kept, p.savesAt = map[int]time.Time{}, map[int]bool{}, map[int]place{}
	p.joined, p.anew = map[int]joined{}, map[int]place{}
}

// knows reports whether epoch is one that training is or was in a moment ago, and its plan is still there.
func (s *stream) knows(epoch int) bool {
	return slices.Contains(s.planner.opened, epoch) && s.stager.Knows(epoch)
}

// folds reports whether the ledger takes what trainers say. One that was restored does not before the plan that it was
// restored at is open: what was reported meanwhile is held, and comes first.
func (p *planner) folds() bool { return p.ledger != nil && p.restored == nil }

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
		if s.newLife(trainer) {
			s.planner.waiting = append(s.planner.waiting, waitingPlan{c, ticket, trainer, epoch, time.Now()})
			s.outRecord(recordAnew, trainer, epoch, int(f.batch), nil)
			s.flushReports()
			s.beginAnew(trainer, place{epoch, int(f.batch)})
			return
		}
		if err = s.join(trainer); err != nil {
			err = refuse("%s", err)
			return
		}
		s.move(trainer, epoch, int(f.batch))
		if _, waits := s.planner.wishes[trainer]; waits && s.stager != nil && !s.planner.weighted() {
			cfg := s.planner.cfg
			cfg.Samples = 0 // nothing is staged by it
			err = s.node.planBeside(c, ticket, cfg, epoch, trainer)
			return
		}
		s.planner.waiting = append(s.planner.waiting, waitingPlan{c, ticket, trainer, epoch, time.Now()})
		if s.planner.refused != nil {
			s.failPlans(s.planner.refused)
		}
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
		if !s.agreed.told() {
			return
		}
		first, err := s.restore(epoch, p.from)
		if err != nil {
			s.refusePlans(err)
			return
		}
		if epoch = first; first > p.want {
			p.want, p.from = first, 0 // what is wanted cannot be planned any more: training is ahead of it
		}
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
	stream, generation := s.streamID(), p.sources.generation
	go func() {
		plan := scheduler.NewPlan(cfg, epoch, scores)
		var source scheduler.Digest
		if cfg.Sampler.Weighted() {
			source = scheduler.ScoresDigest(stream, epoch, scores)
		}
		s.locked(func() {
			p.making = false
			if s.closed {
				return
			}
			if generation == p.sources.generation {
				s.made(plan, scores, source)
			} else {
				s.plan() // training is elsewhere by now
			}
		})
	}()
}

// made takes a new plan: into use if it is wanted, else it waits and its first samples are staged.
func (s *stream) made(plan *scheduler.Plan, base []float32, source scheduler.Digest) {
	p := &s.planner
	if p.weighted() {
		s.tellSource(plan.Epoch, source)
		s.keepState(s.sourceOf(plan, base))
	}
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
		if !p.checkpointed && !restored {
			s.saveState(s.sourceOf(plan, base), false, func(string) {})
		}
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
		if _, waits := s.planner.anew[w.trainer]; waits {
			rest = append(rest, w)
			continue
		}
		if plan := s.planOf(w.epoch); plan != nil && s.sourced(w.epoch) {
			s.reply(w.conn, s.planFrame(w, plan))
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

// planFrame is the reply to PLAN.
func (s *stream) planFrame(w waitingPlan, plan *scheduler.Plan) []byte {
	var source scheduler.Digest
	var path string
	if s.planner.weighted() {
		source, path = s.planner.sources.own(w.epoch), s.statePath(w.epoch)
	}
	return appendPlan(nil, w.ticket, plan, w.trainer, source, path)
}

// sourceOf returns the state that a plan was made from, or is replayed from.
func (s *stream) sourceOf(plan *scheduler.Plan, base []float32) *scheduler.Snapshot {
	p := &s.planner
	if p.restored != nil && p.restored.Epoch == plan.Epoch {
		again := *p.restored
		return &again
	}
	snap := &scheduler.Snapshot{Epoch: plan.Epoch, Scores: base}
	switch newest, ok := p.ledger.Newest(); {
	case ok && newest == plan.Epoch:
		snap = p.ledger.Snapshot(base, 0)
	case ok && newest == plan.Epoch-1:
		snap = p.ledger.SnapshotNext(base)
	}
	snap.Stream = s.streamID()
	return snap
}

// forget lets go of what a client that is gone waits for.
func (s *stream) forget(c *conn) {
	s.locked(func() {
		p := &s.planner
		p.waiting = slices.DeleteFunc(p.waiting, func(w waitingPlan) bool { return w.conn == c })
		p.saves = slices.DeleteFunc(p.saves, func(w waitingSave) bool { return w.conn == c })
	})
}

// refusePlans tells those who wait why there is no plan. They may ask again when trainers say something else.
func (s *stream) refusePlans(err error) {
	p, t := &s.planner, s.node.cfg.Transport
	if p.refused == nil || p.refused.Error() != err.Error() {
		s.node.cfg.Log.Error("there is no plan", "error", err)
		for r := range t.Size() {
			if r != t.Rank() {
				t.Post(r, append(s.node.message(messageRefused, s.index), err.Error()...))
			}
		}
	}
	p.refused, p.want = err, noEpoch
	s.failPlans(err)
}

// onRefused tells those who wait that another rank makes no plan, without which they get none.
func (s *stream) onRefused(from int, sentence string) {
	s.locked(func() { s.failPlans(fmt.Errorf("rank %d says: %s", from, sentence)) })
}

func (s *stream) failPlans(err error) {
	for _, w := range s.planner.waiting {
		s.reply(w.conn, appendError(nil, w.ticket, codeRequest, err.Error()))
	}
	s.planner.waiting = nil
}

// finishEpochs notes that trainer went on to another epoch.
func (s *stream) finishEpochs(trainer int, to place) {
	p := &s.planner
	p.finish[trainer] = to
	if p.folds() {
		p.ledger.Finish(trainer, to.epoch)
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

// tellMissing answers PLANs that have waited for trainers that have not come: their clients say so, and bound the wait.
func (s *stream) tellMissing(now time.Time) {
	if s.agreed.missing == 0 && !s.waitsForTelling() {
		return
	}
	rest := s.planner.waiting[:0]
	for _, w := range s.planner.waiting {
		if now.Sub(w.since) < missedAfter {
			rest = append(rest, w)
			continue
		}
		s.reply(w.conn, appendError(nil, w.ticket, codeNotReady, s.agreed.whoIsMissing()))
	}
	s.planner.waiting = rest
}

// waitsForTelling reports whether the first plan waits for what trainers have to say, of which only workers have come.
func (s *stream) waitsForTelling() bool {
	return s.stager != nil && s.planner.weighted() && s.planner.ledger == nil && !s.agreed.told()
}

// tick answers SAVEs that have waited long enough.
func (p *planner) tick(s *stream, now time.Time) {
	if len(p.saves) > 0 && now.After(p.saves[0].deadline) {
		s.answerSaves()
	}
}
