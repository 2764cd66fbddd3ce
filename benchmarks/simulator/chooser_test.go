package simulator

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// chosen returns the draws of all epochs as ranks plan them, with the losses of cfg's trace, in the
// order of epochs.
func chosen(t *testing.T, cfg *Config) []*draw.Draws {
	t.Helper()
	var world []int32
	for trainer := range cfg.trainers() {
		world = append(world, cfg.rankOf(trainer))
	}
	size := func(draw.SampleID) int64 { return cfg.Cluster.SampleBytes }
	n, batch := cfg.Trace.Samples(), cfg.BatchSize*len(world)
	var ledger *protocol.Ledger
	initial := float32(0)
	if cfg.System.Scorer != "" {
		scorer, err := protocol.NewScorer(cfg.System.Scorer)
		if err != nil {
			t.Fatal(err)
		}
		initial = scorer.Initial(batch)
		ledger = protocol.NewLedger(scorer, protocol.EqualScores(n, initial))
	}
	chooser, err := systems.NewChooser(systems.ChooserConfig{
		System: cfg.System, Values: cfg.Values, World: world, Ranks: cfg.Ranks, Epochs: cfg.Epochs,
		Size: size, Initial: initial,
		CapacityBytes: systems.BookBytes(cfg.Capacity, n, size),
		Sampler: draw.SamplerConfig{
			Samples: n, Seed: cfg.Seed, BatchSize: cfg.BatchSize,
			World: len(world),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	plans := plan.Config{
		Sampler: chooser, BatchSize: cfg.BatchSize, World: world,
		Ranks: cfg.Ranks, Assignment: plan.AssignSampler,
	}
	var all []*draw.Draws
	var scores []float32
	if ledger != nil {
		scores = ledger.Take()
	}
	for epoch := range cfg.Epochs {
		made := plan.New(plans, epoch, scores)
		all = append(all, made.Draws)
		if ledger == nil {
			continue
		}
		ledger.Open(
			&plan.Plan{
				Draws: made.Draws, Batch: batch,
				Consumer: make([]uint16, len(made.IDs)), World: []int32{0},
			})
		for b := range made.Batches() {
			lo, hi := made.Range(b)
			var r protocol.Report
			cfg.Trace.train(epoch, made.IDs[lo:hi], &r)
			if err := ledger.Report(0, epoch, b, r.Losses, nil); err != nil {
				t.Fatal(err)
			}
			if ledger.Fold(nil); b+1 == made.Cut() {
				scores = ledger.Take()
			}
		}
		ledger.Finish(0, epoch+1)
		ledger.Fold(nil)
	}
	return all
}

// everySetup runs a test for every system of a kind, with some numbers of ranks and capacities.
func everySetup(t *testing.T, of func(*systems.System) bool,
	test func(t *testing.T, system *systems.System, ranks int, capacity float64),
) {
	for _, system := range systems.All() {
		if !of(&system) {
			continue
		}
		for _, ranks := range []int{1, 2, 4} {
			for _, capacity := range []float64{0.1, 0.2, 0.4} {
				t.Run(fmt.Sprintf("%s/%d/%v", system.Name, ranks, capacity), func(t *testing.T) {
					t.Parallel()
					test(t, &system, ranks, capacity)
				})
			}
		}
	}
}

// TestChosenIsSimulated checks that every system that ranks run with a Chooser serves the ids that
// the simulator serves, and finds as many in memory.
func TestChosenIsSimulated(t *testing.T) {
	trace := loadShipped(t)
	of := func(s *systems.System) bool { return s.Chooses() && !s.NeedsEmbeddings }
	everySetup(t, of, func(t *testing.T, system *systems.System, ranks int, capacity float64) {
		batch := 64
		if system.Evaluates && ranks == 4 { // the cut comes after the last batch, which is short
			batch = map[float64]int{0.1: 4000, 0.2: 1000, 0.4: 64}[capacity]
		}
		cluster, err := LoadCluster("mlperf-resnet50")
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{
			Trace: trace, System: system, Capacity: capacity, Ranks: ranks,
			BatchSize: batch / ranks, Epochs: len(trace.Losses),
			Cluster: cluster, IDsDigest: true,
		}
		if ranks == 2 && system.Name == "icache" { // options reach both
			cfg.Values = systems.Values{"fraction": 0.5, "beta": 1, "h_share": 0.6}
		}
		want, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		digest, hits, substituted, evaluated := newIDsDigest(true), int64(0), int64(0), int64(0)
		packages, packageBytes := int64(0), int64(0)
		for _, d := range chosen(t, &cfg) {
			for b := range (len(d.IDs) + batch - 1) / batch {
				if !d.Evaluated().Has(b) {
					digest.add(d.IDs[b*batch : min((b+1)*batch, len(d.IDs))])
				}
			}
			packages += int64(len(d.Packages()))
			for _, places := range d.Packages() {
				packageBytes += int64(len(places)) * cluster.SampleBytes
			}
			own, others, measured := outcomes(d, batch)
			hits, substituted, evaluated = hits+own, substituted+others, evaluated+measured
		}
		if got := digest.hex(); got != want.IDsDigest {
			t.Errorf(
				"the ids that ranks serve have the digest %s, the simulated ones %s",
				got, want.IDsDigest)
		}
		if got, full := hits+substituted+want.StorageReads,
			int64(len(trace.Losses)*trace.Samples()); cfg.Values != nil &&
			got > full*6/10 {
			t.Errorf("%d draws of %d with a fraction of a half", got, full)
		}
		if (evaluated > 0) != system.Evaluates {
			t.Errorf("%d draws are evaluated", evaluated)
		}
		if packages != want.Packages || packageBytes != want.PackageBytes ||
			(packages > 0) != system.Packs {
			t.Errorf("%d packages of %d bytes, simulated %d of %d", packages, packageBytes,
				want.Packages, want.PackageBytes)
		}
		if hits != want.Hits || substituted != want.Substituted {
			t.Errorf("%d hits and %d substitutions, simulated %d and %d", hits,
				substituted, want.Hits, want.Substituted)
		}
	})
}

// TestIDsDoNotDependOnTheSize checks that every system serves the same ids whatever the samples'
// size, if all have the same.
func TestIDsDoNotDependOnTheSize(t *testing.T) {
	trace := loadShipped(t).first(500)
	for _, system := range systems.All() {
		if !system.Draws() {
			continue
		}
		t.Run(system.Name, func(t *testing.T) {
			t.Parallel()
			for _, capacity := range []float64{0.1113, 0.3009} { // a part of a sample is left over
				digest := func(size int64) string {
					sized := *trace
					sized.SizesBytes = slices.Repeat([]int64{size}, trace.Samples())
					cfg := Config{
						Trace: &sized, System: &system, Capacity: capacity, Ranks: 2, BatchSize: 10,
						Epochs: len(trace.Losses), IDsDigest: true,
					}
					if system.Name == "icache" || system.Name == "impact" {
						cfg.Values = systems.Values{"package_bytes": float64(10 * size)}
					}
					r, err := Run(cfg)
					if err != nil {
						t.Fatal(err)
					}
					return r.IDsDigest
				}
				if one := digest(1); one != digest(3) || one != digest(1021) {
					t.Errorf("with a memory of %v, samples of other sizes are served other ids",
						capacity)
				}
			}
		})
	}
}

// TestEvaluationTakesTime checks, on a machine that only computes, that an epoch takes the time of
// its steps and of the forward passes.
func TestEvaluationTakesTime(t *testing.T) {
	impact, err := systems.Find("impact")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(Config{
		Trace: loadShipped(t), System: impact, Capacity: 0.2, Ranks: 1, BatchSize: 64,
		Cluster: &Cluster{SampleBytes: 1, Trainer: Trainer{BatchSize: 1, Step: 3 * ms}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := time.Duration(r.Evaluated) * ms
	for _, e := range r.Epochs {
		want += time.Duration(len(e.Batches)) * 64 * 3 * ms
	}
	if got := r.EpochSeconds * float64(len(r.Epochs)); r.Evaluated == 0 ||
		math.Abs(got-want.Seconds()) > 1e-9 {
		t.Errorf("%d samples are evaluated, and all epochs take %v s, want %v", r.Evaluated, got,
			want)
	}
}

// TestIMPACTIsFasterThanICACHE checks the ranking of IMPACT's Fig. 12. The first five epochs, which
// include the warm-up, are not counted.
func TestIMPACTIsFasterThanICACHE(t *testing.T) {
	cluster, err := LoadCluster("mlperf-resnet50")
	if err != nil {
		t.Fatal(err)
	}
	trace := loadShipped(t)
	for _, capacity := range []float64{0.2, 0.4, 0.6} {
		seconds := map[string]float64{}
		for _, name := range []string{"icache", "impact"} {
			system, err := systems.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Run(Config{
				Trace: trace, System: system, Capacity: capacity, Ranks: 1, BatchSize: 64,
				SkipEpochs: 5, Cluster: cluster,
			})
			if err != nil {
				t.Fatal(err)
			}
			seconds[name] = r.EpochSeconds
		}
		// 1.33, 1.27 and 1.25
		if ratio := seconds["icache"] / seconds["impact"]; ratio < 1.2 {
			t.Errorf("with a memory of %v, IMPACT is %.2f times as fast as iCACHE, want at least 1.2",
				capacity, ratio)
		}
	}
}

// first returns the trace of the first samples.
func (t *Trace) first(n int) *Trace {
	part := &Trace{Labels: t.Labels[:n]}
	for epoch := range t.Losses {
		part.Losses = append(part.Losses, t.Losses[epoch][:n])
		part.Embeddings = append(part.Embeddings, t.Embeddings[epoch][:n])
	}
	return part
}

// loadShipped returns the trace of the repository.
func loadShipped(t *testing.T) *Trace {
	t.Helper()
	file := func(what string) string {
		return filepath.Join("..", "traces", "fashion-"+what+".npy")
	}
	trace, err := LoadTrace(
		TraceFiles{Losses: file("losses"), Labels: file("labels"), Embeddings: file("embeddings")})
	if err != nil {
		t.Fatal(err)
	}
	return trace
}
