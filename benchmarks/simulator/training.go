package simulator

import (
	"fmt"

	"rankpool/scheduler"
)

// training is a job's training as its ranks see it: the coordinator is the real one, and stands for
// those of all ranks, which all have the same state. Its commands are executed at once, and nothing
// is written.
type training struct {
	coordinator *scheduler.Coordinator
	plans       scheduler.PlanConfig
	drive       func(scheduler.Event) // passes an event to the stagers of all ranks
	// executes their commands, after each event of the coordinator
	settle   func()
	events   []scheduler.CoordinatorEvent
	answered *scheduler.Plan // the newest plan that a trainer got
}

// newTraining returns a training in which all trainers have opened the data set. drive and settle
// may be nil.
func (s *setup) newTraining(
	seed int64, plans scheduler.PlanConfig, drive func(scheduler.Event), settle func(),
) *training {
	t := &training{plans: plans, drive: drive, settle: settle}
	t.coordinator = scheduler.NewCoordinator(scheduler.CoordinatorConfig{
		Ranks: 1, Samples: s.Trace.Samples(), Scorer: s.drawScorer,
		Epochs: s.Epochs,
	})
	for trainer := range plans.World {
		t.step(scheduler.Opened{Spec: scheduler.Spec{
			Sampler: s.sampler, Seed: seed, BatchSize: s.BatchSize, World: len(plans.World),
			Trainer: trainer, DropLast: s.DropLast,
			Training: &scheduler.Training{Life: 1},
		}})
	}
	return t
}

// begin makes all trainers ask for an epoch's plan, and returns it.
func (t *training) begin(epoch int) *scheduler.Plan {
	for trainer := range t.plans.World {
		t.step(scheduler.PlanWanted{Trainer: trainer, Epoch: epoch})
	}
	if t.answered == nil || t.answered.Epoch != epoch {
		panic(fmt.Sprintf("simulator: epoch %d has no plan", epoch))
	}
	return t.answered
}

// report reports the losses of a global batch, if they matter.
func (t *training) report(epoch, batch int, losses []float32) {
	t.step(scheduler.Trained{
		Trainer: scheduler.AllTrainers, Epoch: epoch, Batch: batch, Losses: losses,
	})
}

// learn reports the losses of a trace for a global batch, if draws depend on them.
func (t *training) learn(trace *Trace, epoch, batch int, ids []scheduler.SampleID) {
	if t.coordinator.Weighted() {
		var r scheduler.Report
		trace.train(epoch, ids, &r)
		t.report(epoch, batch, r.Losses)
	}
}

// score returns a sample's score, 0 if there are none.
func (t *training) score(id scheduler.SampleID) float32 {
	if l := t.coordinator.Ledger(); l != nil {
		return l.Scores()[id]
	}
	return 0
}

func (t *training) step(e scheduler.CoordinatorEvent) {
	t.events = append(t.events, e)
	for len(t.events) > 0 {
		e := t.events[0]
		t.events = t.events[1:]
		t.coordinator.Step(e, t.obey)
		if t.settle != nil {
			t.settle()
		}
	}
}

func (t *training) obey(c scheduler.CoordinatorCommand) {
	switch c := c.(type) {
	case scheduler.Begin:
		t.events = append(t.events, scheduler.Begun{Weighted: t.plans.Sampler.Weighted()})
	case scheduler.ReadStates:
		t.events = append(t.events, scheduler.StatesRead{})
	case scheduler.MakePlan:
		plan := scheduler.NewPlan(t.plans, c.Epoch, c.Scores)
		t.events = append(t.events, scheduler.PlanMade{Plan: plan})
	case scheduler.KeepState:
		t.events = append(t.events, scheduler.StateKept{Epoch: c.Snap.Epoch, Generation: c.Generation})
	case scheduler.Stage:
		if t.drive != nil {
			t.drive(scheduler.Planned{Plan: c.Plan, From: c.From})
		}
	case scheduler.Rescore:
		if t.drive != nil {
			t.drive(scheduler.Scored{
				Epoch: c.Epoch, Batch: c.Batch, IDs: c.IDs, Scores: c.Scores, Total: c.Total,
				Known: c.Known,
			})
		}
	case scheduler.AnswerPlan:
		t.answered = c.Plan
	case scheduler.Refuse:
		panic("simulator: " + c.Why + ".")
	case scheduler.Log:
		if c.Err != nil {
			panic(fmt.Sprintf("simulator: %s: %v.", c.Text, c.Err))
		}
	}
}
