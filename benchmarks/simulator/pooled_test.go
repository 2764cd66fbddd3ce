package simulator

import (
	"encoding/json"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
	"rankpool/scheduler/systems"
)

// syntheticTrace returns a training on samples in a few classes, whose losses fall, some slower
// than others.
func syntheticTrace(samples, epochs int) *Trace {
	state := uint64(1)
	below := func(n uint64) uint64 {
		state = state*6364136223846793005 + 1442695040888963407
		return (state >> 33) % n
	}
	t := &Trace{}
	hard := make([]uint64, samples)
	for i := range hard {
		hard[i] = 1 + below(1000)
		t.Labels = append(t.Labels, int32(below(5)))
	}
	for e := range epochs {
		losses, vectors := make([]float32, samples), make([][]float32, samples)
		for i := range losses {
			losses[i] = float32(hard[i]*uint64(100-10*min(e, 8))+below(10000)) / 65536
			vectors[i] = []float32{
				float32(t.Labels[i]), float32(below(1024)) / 2048,
				float32(below(1024)) / 2048,
			}
		}
		t.Losses, t.Embeddings = append(t.Losses, losses), append(t.Embeddings, vectors)
	}
	return t
}

func pooledOf(t fataler, cfg Config) (*setup, *pooled) {
	t.Helper()
	s, err := newSetup(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPooled(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

// drawsOf returns the draws of a simulated run in the order of batches, of all jobs.
func drawsOf(t fataler, cfg Config) []draw.SampleID {
	t.Helper()
	s, p := pooledOf(t, cfg)
	spy := &spyPool{Pool: p.pool}
	p.pool = spy
	for epoch := range s.Epochs {
		if err := p.epoch(epoch); err != nil {
			t.Fatal(err)
		}
	}
	return spy.ids
}

// spyPool records what is drawn.
type spyPool struct {
	systems.Pool
	ids []draw.SampleID
}

func (p *spyPool) Batch(b *systems.Batch, answers []systems.Answer) {
	p.ids = append(p.ids, b.IDs...)
	p.Pool.Batch(b, answers)
}

// Evaluate implements systems.Evaluator for the pools that do.
func (p *spyPool) Evaluate(job int) []draw.SampleID {
	if e, ok := p.Pool.(systems.Evaluator); ok {
		return e.Evaluate(job)
	}
	return nil
}

// TakeCut implements systems.Evaluator for the pools that do.
func (p *spyPool) TakeCut(job, epoch int) {
	if e, ok := p.Pool.(systems.Evaluator); ok {
		e.TakeCut(job, epoch)
	}
}

// Foresee implements systems.Foreseer for the pools that do.
func (p *spyPool) Foresee(ids []draw.SampleID, next func(draw.SampleID) float64) {
	if f, ok := p.Pool.(systems.Foreseer); ok {
		f.Foresee(ids, next)
	}
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func mustRun(t fataler, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustFind(t fataler, name string) *systems.System {
	t.Helper()
	s, err := systems.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNoSystemBeatsMIN checks that every system is below the offline bound on the same draws, over
// the whole trace.
func TestNoSystemBeatsMIN(t *testing.T) {
	trace := syntheticTrace(600, 6)
	for _, sampler := range []string{"torch", "pads", "weighted", "subset"} {
		for _, ranks := range []int{1, 4} {
			cfg := Config{
				Trace: trace, System: mustFind(t, "min"), Sampler: sampler, Capacity: 0.2,
				Ranks: ranks, BatchSize: 24 / ranks, Seed: 3,
			}
			bound := mustRun(t, cfg)
			for _, s := range systems.All() {
				cfg.System = &s
				r := mustRun(t, cfg)
				if r.Draws != bound.Draws || r.Hits > bound.Hits {
					t.Errorf("%s, %s, %d ranks: %d hits of %d draws, min has %d of %d", s.Name,
						sampler, ranks, r.Hits, r.Draws, bound.Hits, bound.Draws)
				}
				if r.Draws != r.Hits+r.Substituted+r.StorageReads ||
					r.Hits != r.HitsLocal+r.HitsRemote {
					t.Errorf("%s, %s, %d ranks: the sums differ", s.Name, sampler, ranks)
				}
			}
		}
	}
}

// TestRunProperties checks what is true of every system in every configuration.
func TestRunProperties(t *testing.T) {
	trace := syntheticTrace(120, 5)
	rapid.Check(t, func(t *rapid.T) {
		all := systems.All()
		s := &all[rapid.IntRange(0, len(all)-1).Draw(t, "system")]
		cfg := Config{
			Trace: trace, System: s, Ranks: rapid.IntRange(1, 3).Draw(t, "ranks"),
			BatchSize: rapid.IntRange(1, 9).Draw(t, "batch"),
			Capacity:  float64(rapid.IntRange(1, 20).Draw(t, "capacity")) / 20,
			Seed:      int64(rapid.IntRange(0, 9).Draw(t, "seed")),
			Jobs:      rapid.IntRange(1, 3).Draw(t, "jobs"),
			Sampler: rapid.SampledFrom([]string{"", "torch", "pads", "subset"}).Draw(t,
				"sampler"),
		}
		r := mustRun(t, cfg)
		ids := drawsOf(t, cfg)
		bound := minHits(ids, 120, int64(cfg.Capacity*120))
		if r.Hits > bound || r.Draws != int64(len(ids)) ||
			r.Draws != r.Hits+r.Substituted+r.StorageReads {
			t.Fatalf("%s: %d hits, MIN has %d; %d draws of %d", s.Name, r.Hits, bound, r.Draws,
				len(ids))
		}
		if s.Name == "min" && r.Hits != bound {
			t.Fatalf("min has %d hits, MIN %d", r.Hits, bound)
		}
		// whose ranks read a sample once for several draws in the window
		if r.StorageBytes < r.StorageReads && s.Name != "rankpool" {
			t.Fatalf("%s: %d draws from storage, %d bytes read", s.Name, r.StorageReads,
				r.StorageBytes)
		}
		var batches int64
		for _, e := range r.Epochs {
			for _, b := range e.Batches {
				batches += int64(b.Local + b.Remote + b.Substituted + b.Storage)
			}
		}
		if batches != r.Draws {
			t.Fatalf("%s: the batches sum to %d of %d draws", s.Name, batches, r.Draws)
		}
	})
}

// TestDrawsAreThoseOfTheRank checks that the draws of a pool equal those of the real schedulers.
func TestDrawsAreThoseOfTheRank(t *testing.T) {
	losses := recorded(t, 3)
	for _, sampler := range []string{"torch", "pads", "weighted", "subset"} {
		cfg := Config{
			Trace: &Trace{Losses: losses}, System: mustFind(t, "rankpool"), Sampler: sampler,
			Scorer: "logrank", Capacity: 0.2, Ranks: 4, BatchSize: 32, Seed: 5,
		}
		p := ranksOf(t, cfg, func(stager.Deliver) {})
		cfg.System = mustFind(t, "lru")
		if !slices.Equal(drawsOf(t, cfg), p.ids()) {
			t.Errorf("%s: the draws of a pool are not those of the ranks", sampler)
		}
	}
}

// TestDrawsAreTheSameForEverySystem checks that a sampler that the user chose draws the same,
// whatever the system serves.
func TestDrawsAreTheSameForEverySystem(t *testing.T) {
	trace := syntheticTrace(150, 4)
	var want []draw.SampleID
	for _, s := range systems.All() {
		got := drawsOf(
			t, Config{
				Trace: trace, System: &s, Sampler: "weighted", Capacity: 0.3, Ranks: 2,
				BatchSize: 8, Seed: 1, Jobs: 2,
			})
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has other draws than %s", s.Name, systems.All()[0].Name)
		}
	}
}

func TestRunIsTheSameOnAnyNumberOfCores(t *testing.T) {
	trace := syntheticTrace(150, 4)
	var want []string
	for _, cores := range []int{1, 4} {
		before := runtime.GOMAXPROCS(cores)
		var got []string
		for _, s := range systems.All() {
			text, err := json.Marshal(mustRun(t, Config{
				Trace: trace, System: &s, Capacity: 0.2, Ranks: 2, BatchSize: 8, SkipEpochs: 1,
			}))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(text))
		}
		runtime.GOMAXPROCS(before)
		if want == nil {
			want = got
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with %d cores:\n%s\nwith 1:\n%s", cores, got, want)
		}
	}
}

// TestRunSaysWhatIsWrong checks that every wrong argument gives an error of one line that names it.
func TestRunSaysWhatIsWrong(t *testing.T) {
	good := Config{
		Trace: syntheticTrace(20, 2), System: mustFind(t, "lru"), Capacity: 0.5,
		Ranks: 1, BatchSize: 4,
	}
	mustRun(t, good)
	for _, c := range []struct {
		spoil func(*Config)
		want  string
	}{
		{func(c *Config) { c.Capacity = 0 }, "the capacity is 0"},
		{func(c *Config) { c.Capacity = 1.1 }, "the capacity is 1.1"},
		{func(c *Config) { c.Capacity = math.NaN() }, "the capacity is NaN"},
		{func(c *Config) { c.Ranks = 0 }, "0 ranks"},
		{func(c *Config) { c.BatchSize = 0 }, "a batch size of 0"},
		{func(c *Config) { c.Jobs = -1 }, "-1 jobs"},
		{func(c *Config) { c.Epochs = 3 }, "the number of epochs is 3"},
		{func(c *Config) { c.SkipEpochs = 2 }, "2 epochs are skipped"},
		{func(c *Config) { c.Sampler = "torhc" }, `did you mean "torch"?`},
		{func(c *Config) { c.Policy = "lur" }, `did you mean "lru"?`},
		{func(c *Config) { c.Scorer = "los" }, `did you mean "loss"?`},
		{func(c *Config) { c.Values = systems.Values{"x": 1} }, `lru has no options, so none is "x"`},
		{func(c *Config) { c.System, c.Policy = mustFind(t, "min"), "lru" }, "min is a bound"},
		{
			func(c *Config) { c.System, c.Trace = mustFind(t, "spidercache"), permutations(20, 2) },
			"spidercache needs",
		},
	} {
		cfg := good
		c.spoil(&cfg)
		r, err := Run(cfg)
		if err == nil {
			t.Errorf("%s: no error but %+v", c.want, r)
		} else if !strings.HasPrefix(err.Error(), "simulator: ") ||
			!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestPartsAreReplaced replaces sampler, scorer and policy, one at a time; the result names the
// replacement.
func TestPartsAreReplaced(t *testing.T) {
	trace := syntheticTrace(100, 4)
	for _, c := range []struct {
		system, sampler, scorer, policy string
		want                            [3]string
	}{
		{"lru", "", "", "", [3]string{"torch", "", "lru"}},
		{"lru", "pads", "", "", [3]string{"pads", "logrank", "lru"}},
		{"lru", "", "", "app", [3]string{"torch", mustFind(t, "shade").Scorer, "app"}},
		{"shade", "torch", "loss", "", [3]string{"torch", "loss", "app"}},
		{"rankpool", "subset", "", "", [3]string{"subset", "loss", "clairvoyant"}},
		{"min", "weighted", "", "", [3]string{"weighted", "loss", "min"}},
	} {
		r := mustRun(t, Config{
			Trace: trace, System: mustFind(t, c.system), Sampler: c.sampler, Scorer: c.scorer,
			Policy: c.policy, Capacity: 0.2, Ranks: 2, BatchSize: 10,
		})
		if got := [3]string{r.Sampler, r.Scorer, r.Policy}; got != c.want || r.System != c.system {
			t.Errorf("%+v: ran %s as %q, want %q", c, r.System, got, c.want)
		}
	}
	cfg := Config{
		Trace: trace, System: mustFind(t, "lru"), Sampler: "pads", Capacity: 0.2, Ranks: 2,
		BatchSize: 10,
	}
	lru := mustRun(t, cfg)
	cfg.System, cfg.Policy = mustFind(t, "coordl"), "lru"
	other := mustRun(t, cfg)
	if lru.Hits != other.Hits {
		t.Errorf("lru has %d hits, coordl with the policy lru %d", lru.Hits, other.Hits)
	}
}

// TestRankpoolWithSeveralJobs checks that jobs that share the memory stay close to the bound of
// their combined draws.
func TestRankpoolWithSeveralJobs(t *testing.T) {
	trace := &Trace{Losses: recorded(t, 5)}
	for _, sampler := range []string{"torch", "pads", "weighted", "subset"} {
		cfg := Config{
			Trace: trace, System: mustFind(t, "rankpool"), Sampler: sampler,
			Capacity: 0.2, Ranks: 4, BatchSize: 16, SkipEpochs: 3, Jobs: 3,
		}
		r := mustRun(t, cfg)
		cfg.System = mustFind(t, "min")
		if bound := mustRun(t, cfg); float64(r.Hits) < 0.99*float64(bound.Hits) {
			t.Errorf("%s: %d hits, min has %d", sampler, r.Hits, bound.Hits)
		}
	}
}

// TestTimeIsAboveItsBound checks that no system that waits for its loads at an epoch's end is
// faster than computing or storage allows.
func TestTimeIsAboveItsBound(t *testing.T) {
	cluster := &Cluster{
		SampleBytes: 1000,
		Trainer:     Trainer{BatchSize: 8, Step: time.Millisecond},
		Loader:      Loader{Workers: 2, PrefetchFactor: 2},
		Storage:     Storage{Curve: [][2]int64{{1, 4e6}, {8, 8e6}}, OpenLatency: 10 * time.Microsecond},
	}
	for _, s := range systems.All() {
		cfg := Config{
			Trace: syntheticTrace(200, 4), System: &s, Capacity: 0.2, Ranks: 2,
			BatchSize: 8, SkipEpochs: 1, Cluster: cluster,
		}
		r := mustRun(t, cfg)
		if set, err := newSetup(cfg); err != nil ||
			!set.plansAhead() && (r.EpochSeconds < r.BoundSeconds || r.BoundSeconds <= 0) {
			t.Errorf("%s: %v s an epoch, the bound is %v s (%v)", s.Name, r.EpochSeconds,
				r.BoundSeconds, err)
		}
		if r.StorageBytes < 1000*r.StorageReads && s.Name != "rankpool" {
			t.Errorf("%s: %d bytes for %d reads of 1000", s.Name, r.StorageBytes, r.StorageReads)
		}
	}
}

// partitionHits returns how many draws are hits if each of the owners runs MIN in a separate
// partition. The partitions are those of Run.
func partitionHits(ids []draw.SampleID, samples, owners int, capacity int64) (hits int64) {
	for owner := range owners {
		var own []draw.SampleID
		for _, id := range ids {
			if draw.Owner(id, owners) == owner {
				own = append(own, id)
			}
		}
		hits += minHits(own, samples, part(capacity, owner, owners))
	}
	return hits
}

// minHits returns the number of MinHits.
func minHits(ids []draw.SampleID, samples int, capacity int64) (hits int64) {
	for _, hit := range MinHits(ids, samples, capacity) {
		if hit {
			hits++
		}
	}
	return hits
}

// TestMinPartitionedIsMINInEachPart checks that the system agrees with MIN run over each rank's
// draws separately.
func TestMinPartitionedIsMINInEachPart(t *testing.T) {
	trace := syntheticTrace(300, 4)
	for _, bytes := range []int64{1, 1000} {
		cfg := Config{
			Trace: trace, System: mustFind(t, "min-partitioned"), Sampler: "pads",
			Capacity: 0.21, Ranks: 4, BatchSize: 10, Cluster: &Cluster{SampleBytes: bytes},
		}
		r := mustRun(t, cfg)
		if want := partitionHits(drawsOf(t, cfg), 300, 4, 63); r.Hits != want {
			t.Errorf("samples of %d bytes: %d hits, MIN in each partition has %d", bytes, r.Hits,
				want)
		}
	}
}
