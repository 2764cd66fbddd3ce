package simulator

import (
	"math"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// learned returns the draws of all epochs as ranks plan them for a system that learns within an
// epoch. One learner draws every epoch, another follows training; before every second epoch the
// ranks restart, as in mid-training.
func learned(t *testing.T, cfg *Config) [][]draw.SampleID {
	t.Helper()
	var world []int32
	for trainer := range cfg.trainers() {
		world = append(world, cfg.rankOf(trainer))
	}
	n, batch := cfg.Trace.Samples(), cfg.BatchSize*len(world)
	scorer, err := protocol.NewScorer(cfg.System.Scorer)
	if err != nil {
		t.Fatal(err)
	}
	size := func(draw.SampleID) int64 { return 3 }
	of := systems.ChooserConfig{
		System: cfg.System, Values: cfg.Values, World: world, Ranks: cfg.Ranks, Size: size,
		Initial:       scorer.Initial(batch),
		CapacityBytes: systems.BookBytes(cfg.Capacity, n, size),
		Sampler: draw.SamplerConfig{
			Samples: n, Seed: cfg.Seed, BatchSize: cfg.BatchSize,
			World: len(world),
		},
	}
	newFollower := func() protocol.Learner {
		l, err := systems.NewFollower(of)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	draws, err := systems.NewLearner(of)
	if err != nil {
		t.Fatal(err)
	}
	ledger := protocol.NewLedger(scorer, protocol.EqualScores(n, scorer.Initial(batch)))
	follows := newFollower()
	var tail []func() // what was folded since the cut
	fold := func() {
		ledger.Fold(func(f protocol.Folded) {
			scores := slices.Clone(ledger.Scores())
			tail = append(tail, func() { follows.Learn(f, scores) })
			follows.Learn(f, scores)
		})
	}
	var all [][]draw.SampleID
	scores := ledger.Take()
	at := follows.Cut(scores, cfg.Trace.accuracyBefore(0))()
	for epoch := range cfg.Epochs {
		if epoch%2 == 1 {
			follows = newFollower()
			if err := follows.Begin(scores, at); err != nil {
				t.Fatal(err)
			}
			for _, again := range tail {
				again()
			}
		}
		if err := draws.Begin(scores, at); err != nil {
			t.Fatal(err)
		}
		plan := plan.New(plan.Config{
			Sampler: draws, BatchSize: cfg.BatchSize, World: world, Ranks: cfg.Ranks,
			Assignment: plan.AssignSampler,
		}, epoch, scores)
		all = append(all, plan.IDs)
		ledger.Open(plan)
		for b := range plan.Batches() {
			lo, hi := plan.Range(b)
			var r protocol.Report
			cfg.Trace.train(epoch, plan.IDs[lo:hi], &r)
			if err := ledger.Report(protocol.AllTrainers, epoch, b, r.Losses, nil); err != nil {
				t.Fatal(err)
			}
			if fold(); b+1 == plan.Cut() {
				scores, tail = ledger.Take(), nil
				at = follows.Cut(scores, cfg.Trace.accuracyBefore(epoch))()
			}
		}
		fold()
	}
	return all
}

// measured returns a trace with accuracies, also falling and missing ones.
func measured(trace *Trace) *Trace {
	with := *trace
	none := float32(math.NaN())
	with.Accuracies = []float32{0.3, 0.5, 0.7, none, 0.6, 0.4, 0.2, 0.5, 0.6, none}
	return &with
}

// accuraciesMatter checks that a system serves other ids if training measures no accuracy.
func accuraciesMatter(t *testing.T, cfg Config, with *Result) {
	t.Helper()
	trace := *cfg.Trace
	trace.Accuracies, cfg.Trace = nil, &trace
	if without, err := Run(cfg); err != nil || without.IDsDigest == with.IDsDigest {
		t.Errorf("without accuracies the same ids are served (%v)", err)
	}
}

// TestLearnedIsSimulated checks that ranks draw the ids that the simulator draws, for every system
// that learns within an epoch.
func TestLearnedIsSimulated(t *testing.T) {
	trace := loadShipped(t)
	odd := &Trace{}
	for _, losses := range trace.Losses {
		odd.Losses = append(odd.Losses, slices.Concat(losses[:777]))
	}
	of := func(s *systems.System) bool { return s.Learns() }
	everySetup(t, of, func(t *testing.T, system *systems.System, ranks int, capacity float64) {
		cfg := Config{
			Trace: trace, System: system, Capacity: capacity, Ranks: ranks, BatchSize: 64 / ranks,
			Epochs: len(trace.Losses), IDsDigest: true,
		}
		if ranks == 2 { // a last batch that is not full, and options
			cfg.Trace, cfg.TrainersPerRank, cfg.BatchSize, cfg.Seed = odd, 3, 5, 7
			cfg.Values = systems.Values{"repetition": 2, "steep": 0.08}
		}
		if ranks == 4 {
			cfg.Trace = measured(trace)
		}
		want, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if ranks == 4 {
			accuraciesMatter(t, cfg, want)
		}
		digest, batch := newIDsDigest(true), cfg.BatchSize*cfg.trainers()
		for _, ids := range learned(t, &cfg) {
			for b := range slices.Chunk(ids, batch) {
				digest.add(b)
			}
		}
		if got := digest.hex(); got != want.IDsDigest {
			t.Errorf("the ids that ranks serve have the digest %s, the simulated ones %s", got,
				want.IDsDigest)
		}
	})
}
