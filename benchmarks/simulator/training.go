package simulator

import (
	"fmt"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
	"rankpool/scheduler/systems"
)

// training is a job's training as its ranks see it: the coordinator is the real one, and stands for
// those of all ranks, which all have the same state. Its commands are executed at once, and nothing
// is written.
type training struct {
	coordinator *protocol.Coordinator
	plans       plan.Config
	drive       func(stager.Event) // passes an event to the stagers of all ranks
	// executes their commands, after each event of the coordinator
	settle   func()
	events   []protocol.Event
	answered *plan.Plan // the newest plan that a trainer got
}

// newTraining returns a training in which all trainers have opened the data set. drive and settle
// may be nil.
func (s *setup) newTraining(
	seed int64, plans plan.Config, drive func(stager.Event), settle func(),
) *training {
	t := &training{plans: plans, drive: drive, settle: settle}
	t.coordinator = protocol.New(protocol.Config{
		Ranks: 1, Samples: s.Trace.Samples(), Scorer: s.drawScorer,
		Epochs:  s.Epochs,
		Learner: func() protocol.Learner { return protocol.NewResumerLearner(plans.Sampler) },
	})
	for trainer := range plans.World {
		t.step(protocol.Opened{Spec: protocol.Spec{
			Sampler: s.sampler, Seed: seed, BatchSize: s.BatchSize, World: len(plans.World),
			Trainer: trainer, DropLast: s.DropLast,
			Training: &protocol.Training{Life: 1},
		}})
	}
	return t
}

// begin makes all trainers ask for an epoch's plan, and returns it.
func (t *training) begin(epoch int) *plan.Plan {
	for trainer := range t.plans.World {
		t.step(protocol.PlanWanted{Trainer: trainer, Epoch: epoch})
	}
	if t.answered == nil || t.answered.Epoch != epoch {
		panic(fmt.Sprintf("simulator: epoch %d has no plan", epoch))
	}
	return t.answered
}

// report reports the losses of a global batch, if they matter.
func (t *training) report(epoch, batch int, losses []float32) {
	t.step(protocol.Trained{
		Trainer: protocol.AllTrainers, Epoch: epoch, Batch: batch, Losses: losses,
	})
}

// learn reports the losses of a trace for a global batch, if draws depend on them.
func (t *training) learn(trace *Trace, epoch, batch int, ids []draw.SampleID) {
	if t.coordinator.Weighted() {
		var r protocol.Report
		trace.train(epoch, ids, &r)
		t.report(epoch, batch, r.Losses)
	}
}

// score returns a sample's score, 0 if there are none.
func (t *training) score(id draw.SampleID) float32 {
	if l := t.coordinator.Ledger(); l != nil {
		return l.Scores()[id]
	}
	return 0
}

func (t *training) step(e protocol.Event) {
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

func (t *training) obey(c protocol.Command) {
	switch c := c.(type) {
	case protocol.Begin:
		t.events = append(t.events, protocol.Begun{Weighted: t.plans.Sampler.Weighted()})
	case protocol.ReadStates:
		t.events = append(t.events, protocol.StatesRead{})
	case protocol.MakePlan:
		if err := systems.Prepare(t.plans.Sampler, &c); err != nil {
			panic("simulator: " + err.Error() + ".")
		}
		plan := plan.New(t.plans, c.Epoch, c.Scores)
		t.events = append(t.events, protocol.PlanMade{Plan: plan})
	case protocol.KeepState:
		t.events = append(t.events, protocol.StateKept{Epoch: c.Snap.Epoch, Generation: c.Generation})
	case protocol.Stage:
		if t.drive != nil {
			t.drive(stager.Planned{Plan: c.Plan.Held(), From: c.From})
		}
	case protocol.Rescore:
		if t.drive != nil {
			t.drive(stager.Scored{
				Epoch: c.Epoch, Batch: c.Batch, IDs: c.IDs, Scores: c.Scores, Total: c.Total,
				Known: c.Known,
			})
		}
	case protocol.AnswerPlan:
		t.answered = c.Plan
	case protocol.Refuse:
		panic("simulator: " + c.Why + ".")
	case protocol.Log:
		if c.Err != nil {
			panic(fmt.Sprintf("simulator: %s: %v.", c.Text, c.Err))
		}
	}
}
