package record

import (
	"errors"
	"fmt"
	"math"

	"rankpool/scheduler"
	"rankpool/scheduler/systems"
)

// coordinated is a coordinator in a replay.
type coordinated struct {
	*scheduler.Coordinator
	coordination *Coordination
	setup        *Setup // of the training agreed on; nil before
	plans        scheduler.PlanConfig
	making       *scheduler.MakePlan // nil: none
	note         string              // how the event itself differs
	last         any                 // event
	commands     []string            // that it caused
	events       int64
}

// coordinate begins the replay of a coordinator.
func (p *player) coordinate(stream int, c *Coordination) error {
	cfg := c.Config
	if cfg.Samples < 1 || cfg.Samples > p.drawsMax || cfg.Ranks < 1 || cfg.Ranks > math.MaxUint16 ||
		cfg.Rank < 0 || cfg.Rank >= cfg.Ranks || len(c.KeptBytes) > cfg.Ranks {
		return fmt.Errorf("the coordinator of data set %q: %w", cfg.Data, errMalformed)
	}
	s := &coordinated{coordination: c}
	cfg.Placement, cfg.Learner = s.placement, s.learner
	s.Coordinator = scheduler.NewCoordinator(cfg)
	p.coordinators[stream] = s
	return nil
}

// begin gives the coordinator the setup of the training that it has agreed on. The coordinator has
// its own sampler, since the stager's follows the stager's plans.
func (s *coordinated) begin(setup *Setup) error {
	if setup.Sampler.Samples != s.coordination.Config.Samples {
		return errMalformed
	}
	plans, _, err := setup.New()
	s.setup, s.plans = setup, plans
	return err
}

// placement implements scheduler.CoordinatorConfig.Placement as ranks do.
func (s *coordinated) placement(from *scheduler.Placed) *scheduler.Placement {
	if s.setup == nil {
		return nil
	}
	return s.setup.Placement(s.plans.Sampler, s.coordination.KeptBytes, from)
}

func (s *coordinated) learner() scheduler.Learner {
	if s.setup == nil {
		return nil
	}
	return s.setup.NewLearner()
}

// told replays an event. It returns an error if the coordinator panics: the recording is damaged,
// or has found a bug.
func (s *coordinated) told(told any, drawsMax int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panics: %v", r)
		}
		if err != nil {
			err = fmt.Errorf("event %d of the coordinator, %s: %w", s.events, describe(told), err)
		}
	}()
	s.events++
	s.last, s.note, s.commands = told, "", nil
	e, err := s.remade(told)
	if err == nil {
		err = plausible(e, drawsMax)
	}
	if err != nil {
		return err
	}
	s.Step(e, func(c scheduler.CoordinatorCommand) {
		s.commands = append(s.commands, commandText(c))
		if m, is := c.(scheduler.MakePlan); is {
			s.making = &m
		}
	})
	return nil
}

// plausible returns an error for an event that would need more memory than the data set allows.
func plausible(e scheduler.CoordinatorEvent, drawsMax int) error {
	var spec scheduler.Spec
	switch e := e.(type) {
	case scheduler.Opened:
		spec = e.Spec
	case scheduler.Remembered:
		spec = e.Spec
	default:
		return nil
	}
	if spec.World < 1 || spec.BatchSize < 1 || spec.World > drawsMax/spec.BatchSize ||
		spec.Trainer < 0 || spec.Trainer >= spec.World {
		return errMalformed
	}
	return nil
}

// remade returns the event that was recorded.
func (s *coordinated) remade(told any) (scheduler.CoordinatorEvent, error) {
	switch t := told.(type) {
	case planMade:
		return s.planMade(t)
	case statesRead:
		return scheduler.StatesRead{
			Kept: eachState(t.Kept, stateFile.state), Own: eachState(t.Own, stateFile.state),
			File: t.File.state(), Previous: t.Previous.state(), Aside: t.Aside.state(),
		}, nil
	case bare:
		if t == bareFinished {
			return scheduler.Finished{}, nil
		}
	case scheduler.CoordinatorEvent:
		return t, nil
	}
	return nil, errMalformed
}

// planMade makes the plan that the coordinator has asked for.
func (s *coordinated) planMade(t planMade) (scheduler.CoordinatorEvent, error) {
	m := s.making
	if m == nil || s.setup == nil || m.Epoch != t.Epoch {
		return nil, errors.New("the coordinator has asked for no such plan")
	}
	s.making = nil
	cfg := s.plans
	cfg.Place, cfg.Processes, cfg.Layout = m.Place, m.Processes, m.Layout
	if err := systems.Prepare(cfg.Sampler, m); err != nil {
		return nil, err
	}
	plan := scheduler.NewPlan(cfg, m.Epoch, m.Scores)
	if digest(plan) != t.Digest {
		s.note = "the plan itself differs"
	}
	e := scheduler.PlanMade{Plan: plan}
	if cfg.Sampler.Weighted() {
		e.Scores = m.Digest()
	}
	return e, nil
}

// did compares the commands that the last event caused with the recorded ones.
func (p *player) did(s *coordinated, recorded []string) {
	d := difference(recorded, s.commands, s.note)
	if d == nil {
		return
	}
	cfg := s.coordination.Config
	d.Rank, d.Start, d.Data, d.Number = cfg.Rank, len(p.Lives), cfg.Data, s.events
	d.Event = "the coordinator's " + describe(s.last)
	p.Difference = d
}
