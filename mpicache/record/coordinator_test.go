package record

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"rankpool/scheduler"
)

// coordinatedRank is a rank with one trainer, whose folder and plans are ready at once.
type coordinatedRank struct {
	*scheduler.Coordinator
	t        testing.TB
	header   *Setup // that is recorded
	plans    scheduler.PlanConfig
	recorder *Recorder
	tape     *CoordinatorTape
	queue    []scheduler.CoordinatorEvent
	plan     *scheduler.Plan
}

// decided trains two epochs with the sampler pads. It records the coordinator's decisions, a setup
// with this seed, and what add, if not nil, adds at the end.
func decided(t testing.TB, seed int64, add func(r *Recorder)) []byte {
	var b buffer
	b.WriteString(magic)
	r := &coordinatedRank{t: t, recorder: newRecorder(&b, begin(), quiet(), pendingBytes)}
	r.header = testSetup("clairvoyant", "pads")
	r.header.Ranks, r.header.World, r.header.Sampler.World = 1, []int32{0}, 1
	var err error
	if r.plans, _, err = r.header.New(); err != nil {
		t.Fatal(err)
	}
	r.header.Sampler.Seed = seed
	c := &Coordination{Config: scheduler.CoordinatorConfig{
		Ranks: 1, Data: "train", Samples: r.header.Sampler.Samples,
	}}
	r.tape = r.recorder.CoordinatorTape(0, c)
	r.Coordinator = scheduler.NewCoordinator(c.Config)
	r.tell(scheduler.Opened{Spec: scheduler.Spec{
		Data: "train", Sampler: "pads", Seed: testSeed, BatchSize: 5, World: 1,
		Training: &scheduler.Training{Life: 1},
	}, Ticket: 1})
	for epoch := range 2 {
		r.tell(scheduler.PlanWanted{Epoch: epoch, Ticket: uint64(2 + epoch), Now: time.Second})
		if r.plan == nil || r.plan.Epoch != epoch {
			t.Fatalf("epoch %d has no plan", epoch)
		}
		for batch := range r.plan.Batches() {
			r.tell(scheduler.Ticked{Now: time.Duration(2+batch) * time.Second})
			r.tell(scheduler.Trained{
				Epoch: epoch, Batch: batch, Losses: []float32{1, 2, 3, 4, float32(batch)},
			})
		}
	}
	if add != nil {
		add(r.recorder)
	}
	if err := r.recorder.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (r *coordinatedRank) tell(e scheduler.CoordinatorEvent) {
	r.queue = append(r.queue, e)
	for len(r.queue) > 0 {
		e, r.queue = r.queue[0], r.queue[1:]
		r.tape.Step(r.Coordinator, e, r.obey)
	}
}

func (r *coordinatedRank) obey(c scheduler.CoordinatorCommand) {
	switch c := c.(type) {
	case scheduler.Begin:
		r.recorder.Tape(0, r.header)
		r.queue = append(r.queue, scheduler.Begun{Weighted: true})
	case scheduler.ReadStates:
		r.queue = append(r.queue, scheduler.StatesRead{})
	case scheduler.MakePlan:
		cfg := r.plans
		cfg.Place, cfg.Processes, cfg.Layout = c.Place, c.Processes, c.Layout
		r.queue = append(r.queue, scheduler.PlanMade{
			Plan: scheduler.NewPlan(cfg, c.Epoch, c.Scores), Scores: c.Digest(),
		})
	case scheduler.KeepState:
		r.queue = append(r.queue, scheduler.StateKept{
			Epoch: c.Snap.Epoch, Generation: c.Generation,
		})
	case scheduler.AnswerPlan:
		r.plan = c.Plan
	case scheduler.Refuse:
		r.t.Fatal(c.Why)
	}
}

func TestReplayOfACoordinator(t *testing.T) {
	result, err := Replay(bytes.NewReader(decided(t, testSeed, nil)))
	if err != nil || result.Difference != nil {
		t.Fatalf("%+v, %v", result.Difference, err)
	}
	if row := result.Rows[0]; len(result.Rows) != 1 || row.CoordinatorEvents < 30 {
		t.Errorf("%+v", result.Rows)
	}
}

// TestReplayNoticesADecision checks that a replay finds a command or a plan that differs from the
// rank's.
func TestReplayNoticesADecision(t *testing.T) {
	for name, c := range map[string]struct {
		seed int64
		add  func(r *Recorder)
		want string
	}{
		"a command": {testSeed, func(r *Recorder) {
			r.add(&entry{Told: scheduler.Canceled{Ticket: 9}})
			r.add(&entry{Did: &did{[]string{"Accept{}"}}})
		}, "no more commands"},
		"no command": {testSeed, func(r *Recorder) {
			r.add(&entry{Told: scheduler.SaveWanted{Epoch: 1, Batch: 2, Ticket: 9}})
			r.add(&entry{Did: &did{}})
		}, "SaveState"},
		"a plan": {testSeed + 1, nil, "the plan itself differs"},
	} {
		result, err := Replay(bytes.NewReader(decided(t, c.seed, c.add)))
		if err != nil || result.Difference == nil {
			t.Errorf("%s: %+v, %v", name, result, err)
			continue
		}
		d := result.Difference
		if !strings.HasPrefix(d.Event, "the coordinator's ") ||
			!strings.Contains(strings.Join(d.Replayed, "\n"), c.want) {
			t.Errorf("%s: %+v", name, *d)
		}
	}
}

// TestReplayOfImpossibleDecisions checks that a recording of events that no coordinator can get is
// an error.
func TestReplayOfImpossibleDecisions(t *testing.T) {
	for name, told := range map[string]any{
		"a plan not requested":   planMade{Epoch: 7},
		"an event of the stager": scheduler.Released{},
		"a trainer too many": scheduler.Opened{
			Spec: scheduler.Spec{BatchSize: 1, World: 1, Trainer: 1},
		},
		"a batch of all memory": scheduler.Opened{Spec: scheduler.Spec{BatchSize: 1 << 40, World: 1}},
	} {
		recording := decided(t, testSeed, func(r *Recorder) { r.add(&entry{Told: told}) })
		if result, err := Replay(bytes.NewReader(recording)); err == nil {
			t.Errorf("%s: %+v", name, result)
		}
	}
}
