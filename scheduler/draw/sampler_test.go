package draw

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/schedulertest"
)

func TestNewSamplerErrors(t *testing.T) {
	good := SamplerConfig{Name: "uniform", Samples: 10, BatchSize: 2, World: 3}
	tests := []struct {
		name   string
		change func(c *SamplerConfig)
		want   string
	}{
		{
			"unknown", func(c *SamplerConfig) { c.Name = "random" },
			`unknown sampler "random", the known ones are chunks, pads, selective, sequential, subset, thrifty, torch, torch-sequential, uniform, weighted, weighted-once`,
		},
		{"no samples", func(c *SamplerConfig) { c.Samples = 0 }, "samples is 0"},
		{"too many samples", func(c *SamplerConfig) { c.Samples = 1 << 31 }, "2^31"},
		{"batch size", func(c *SamplerConfig) { c.BatchSize = 0 }, "batch size is 0"},
		{"no trainers", func(c *SamplerConfig) { c.World = -1 }, "trainers is -1"},
		{"too many trainers", func(c *SamplerConfig) { c.World = 1 << 16 }, "65535"},
		{
			"huge batch", func(c *SamplerConfig) { c.BatchSize, c.World = 1<<20, 1<<11 },
			"2^31 draws or more",
		},
		{
			"a batch of few samples, repeated", func(c *SamplerConfig) { c.BatchSize = 1 << 25 },
			"10 samples would be repeated to fill a global batch of 100663296 draws",
		},
		{"fraction", func(c *SamplerConfig) { c.Fraction = 1.5 }, "fraction is 1.5"},
		{"beta", func(c *SamplerConfig) { c.Name, c.Beta = "selective", -1 }, "beta is -1"},
		{"NaN fraction", func(c *SamplerConfig) { c.Fraction = math.NaN() }, "fraction is NaN"},
		{
			"drop last", func(c *SamplerConfig) { c.DropLast, c.BatchSize = true, 4 },
			"fewer than one global batch of 12",
		},
		{
			"sampler drop last", func(c *SamplerConfig) { c.SamplerDropLast = true },
			"belongs to the samplers torch",
		},
		{
			"torch, drop last",
			func(c *SamplerConfig) { c.Name, c.DropLast, c.BatchSize = "torch", true, 5 },
			"12 draws are fewer than one global batch of 15",
		},
		{
			"torch, sampler drop last",
			func(c *SamplerConfig) { c.Name, c.SamplerDropLast, c.World = "torch", true, 11 },
			"10 samples are fewer than 11 trainers",
		},
		{
			"torch, too many samples",
			func(c *SamplerConfig) { c.Name, c.Samples = "torch", torchSamplesMax },
			"another algorithm",
		},
	}
	mustSampler(t, good)
	for _, tt := range tests {
		cfg := good
		tt.change(&cfg)
		_, err := NewSampler(cfg)
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.HasPrefix(err.Error(), "scheduler: ") {
			t.Errorf("%s: the error is %v, want one with %q", tt.name, err, tt.want)
		}
	}
	torch := SamplerConfig{Name: "torch", Samples: 10, BatchSize: 4, World: 3, DropLast: true}
	mustSampler(t, torch) // 10 samples are padded to 12 draws, one global batch
}

func TestDrawMisuse(t *testing.T) {
	for _, name := range []string{"pads", "weighted", "weighted-once", "subset"} {
		s := mustSampler(t, SamplerConfig{Name: name, Samples: 3, BatchSize: 1, World: 1})
		for _, scores := range [][]float32{
			nil,
			{1, 2},
			{1, 2, float32(math.Inf(-1))},
			{1, float32(math.NaN()), 1},
			{1, 1, float32(math.Inf(1))},
		} {
			schedulertest.MustPanic(t, name, func() { s.Draw(0, scores) })
		}
	}
}

// anyConfig generates a configuration that NewSampler accepts.
func anyConfig(t *rapid.T) SamplerConfig {
	cfg := SamplerConfig{
		Name:      rapid.SampledFrom(SamplerNames()).Draw(t, "name"),
		Samples:   rapid.IntRange(1, 300).Draw(t, "samples"),
		Seed:      rapid.Int64().Draw(t, "seed"),
		BatchSize: rapid.IntRange(1, 20).Draw(t, "batch size"),
		World:     rapid.IntRange(1, 8).Draw(t, "world"),
		DropLast:  rapid.Bool().Draw(t, "drop last"),
	}
	if cfg.asTorch() {
		cfg.SamplerDropLast = rapid.Bool().Draw(t, "sampler drop last")
	}
	if _, err := NewSampler(cfg); err != nil {
		cfg.DropLast, cfg.SamplerDropLast = false, false
	}
	return cfg
}

func anyScores(t *rapid.T, samples int) []float32 {
	score := rapid.OneOf(rapid.Just(float32(0)), rapid.Just(float32(1)), rapid.Float32Range(0, 10),
		rapid.Float32Range(0, math.MaxFloat32), rapid.Float32Range(-3, 3),
		rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32))
	return rapid.SliceOfN(score, samples, samples).Draw(t, "scores")
}

// TestDraws checks, for any sampler, the length of an epoch, which samples are in it, and that it
// is a function of its arguments.
func TestDraws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := anyConfig(t)
		scores := anyScores(t, cfg.Samples)
		epoch := rapid.IntRange(0, 1000).Draw(t, "epoch")
		s, err := NewSampler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		d := s.Draw(epoch, scores)
		checkLength(t, cfg, len(d.IDs))
		checkOnce(t, cfg, d.IDs)
		again, _ := NewSampler(cfg)
		again.Draw(epoch+1, scores)
		if same := again.Draw(epoch, slices.Clone(scores)); !slices.Equal(same.IDs, d.IDs) {
			t.Fatalf("the same epoch has other draws")
		}
		for _, id := range d.IDs {
			if int(id) >= cfg.Samples {
				t.Fatalf("sample %d of %d is drawn", id, cfg.Samples)
			}
		}
		tiny := func(score float32) bool { return score != 0 && math.Abs(float64(score)) < 1e-30 }
		if (withReplacement(cfg) || cfg.Name == "subset") && !slices.ContainsFunc(scores, tiny) {
			checkWeights(t, cfg, d)
		}
	})
}

// checkWeights checks that every sample can be drawn, that no weight exceeds the bound, and that
// the shares are those of one epoch.
func checkWeights(t *rapid.T, cfg SamplerConfig, d *Draws) {
	shares := 0.0
	for id := range SampleID(cfg.Samples) {
		w := d.Weight(id)
		if !(w > 0 && w <= 1/DefaultFloor) {
			t.Fatalf("sample %d has the weight %v", id, w)
		}
		shares += 1 / float64(w)
	}
	if math.Abs(shares/float64(cfg.Samples)-1) > 1e-4 {
		t.Fatalf("the shares of the samples add up to %v", shares/float64(cfg.Samples))
	}
}

func withReplacement(cfg SamplerConfig) bool { return cfg.Name == "pads" || cfg.Name == "weighted" }

func checkLength(t *rapid.T, cfg SamplerConfig, got int) {
	batch, n := cfg.globalBatch(), cfg.Samples
	want := (n + batch - 1) / batch * batch
	switch cfg.Name {
	case "torch", "torch-sequential":
		want = (n + cfg.World - 1) / cfg.World * cfg.World
		if cfg.SamplerDropLast {
			want = n / cfg.World * cfg.World
		}
	case "sequential":
		want = n
	case "subset", "selective":
		if got == 0 || got > want || got%batch != 0 {
			t.Fatalf("%+v: %d draws", cfg, got)
		}
		return
	}
	if cfg.DropLast {
		want = n / batch * batch
		if cfg.asTorch() && !cfg.SamplerDropLast {
			want = (n + cfg.World - 1) / cfg.World * cfg.World / batch * batch
		}
	}
	if got != want {
		t.Fatalf("%+v: %d draws, want %d", cfg, got, want)
	}
}

// checkOnce checks that draws without replacement hold no sample twice, except for those that fill
// the last batch, which repeat the epoch's beginning.
func checkOnce(t *rapid.T, cfg SamplerConfig, ids []SampleID) {
	if withReplacement(cfg) {
		return
	}
	seen := make(map[SampleID]bool)
	for i, id := range ids {
		if seen[id] {
			if !cfg.DropLast && cfg.Name != "subset" && cfg.Name != "selective" &&
				len(seen) != cfg.Samples {
				t.Fatalf("%+v: draw %d repeats sample %d before all were drawn", cfg, i, id)
			}
			for k := i; k < len(ids); k++ {
				if ids[k] != ids[k-i] {
					t.Fatalf("%+v: draws from %d on do not repeat the beginning: %v", cfg, i, ids)
				}
			}
			return
		}
		seen[id] = true
	}
}

// TestWorldDoesNotMatter: our own samplers draw the same, however many trainers share the global
// batch.
func TestWorldDoesNotMatter(t *testing.T) {
	scores := testScores(500)
	for _, name := range SamplerNames() {
		if name == "torch" || name == InTorchsOrder {
			continue
		}
		a := mustSampler(t, SamplerConfig{Name: name, Samples: 500, BatchSize: 64, World: 1}).Draw(
			2, scores)
		b := mustSampler(t, SamplerConfig{Name: name, Samples: 500, BatchSize: 4, World: 16}).Draw(
			2, scores)
		if !slices.Equal(a.IDs, b.IDs) {
			t.Errorf("%s: 16 trainers get other global batches than one", name)
		}
	}
}

// TestEqualScores: all zero counts as all equal, and equal clocks make weighted-once a uniform
// permutation.
func TestEqualScores(t *testing.T) {
	const n = 1000
	draw := func(name string, score float32) []SampleID {
		scores := make([]float32, n)
		for i := range scores {
			scores[i] = score
		}
		return mustSampler(
			t, SamplerConfig{Name: name, Samples: n, BatchSize: 10, World: 2, Seed: 9}).Draw(4,
			scores).IDs
	}
	for _, name := range []string{"pads", "weighted", "weighted-once", "subset"} {
		if !slices.Equal(draw(name, 0), draw(name, 2)) {
			t.Errorf("%s: zero scores and equal scores make different draws", name)
		}
	}
	if !slices.Equal(draw("weighted-once", 1), draw("uniform", 1)) {
		t.Error("weighted-once with equal scores is not the uniform permutation")
	}
}

// TestSeedsAndEpochsDiffer: neighbouring seeds and epochs share no more draws by place than by
// chance.
func TestSeedsAndEpochsDiffer(t *testing.T) {
	const n = 2000
	scores := testScores(n)
	for _, name := range SamplerNames() {
		if name == "sequential" || name == InTorchsOrder {
			continue
		}
		draw := func(seed int64, epoch int) []SampleID {
			cfg := SamplerConfig{Name: name, Samples: n, BatchSize: 10, World: 2, Seed: seed}
			return mustSampler(t, cfg).Draw(epoch, scores).IDs
		}
		base := draw(0, 0)
		for what, other := range map[string][]SampleID{"seed": draw(1, 0), "epoch": draw(0, 1)} {
			same := 0
			for i := range min(len(base), len(other)) {
				if base[i] == other[i] {
					same++
				}
			}
			if same > 40 { // important samples coincide by chance
				t.Errorf("%s: the next %s has %d of %d draws at the same place", name, what, same,
					len(base))
			}
		}
	}
}

// TestHorizonDoesNotMatter: the first L arrivals are the same, however far the horizon is.
func TestHorizonDoesNotMatter(t *testing.T) {
	const n = 3000
	r := newRates(testScores(n), n, n, NoFloor)
	clock := newSource(5, forClock).epoch(1)
	want := arrivals(clock, r, n, 1.2).ids(n)
	for _, horizon := range []float64{1.1, 1.3, 2, 7.7} {
		if got := arrivals(clock, r, n, horizon).ids(n); !slices.Equal(got, want) {
			t.Errorf("the horizon %v makes other draws", horizon)
		}
	}
}

// TestHorizonGrows: tiny epochs often have too few arrivals in the first horizon; they still have L
// draws.
func TestHorizonGrows(t *testing.T) {
	for seed := range int64(200) {
		cfg := SamplerConfig{Name: "weighted", Samples: 2, BatchSize: 1, World: 1, Seed: seed}
		if got := len(mustSampler(t, cfg).Draw(0, []float32{1e-30, 1e30}).IDs); got != 2 {
			t.Fatalf("seed %d: %d draws", seed, got)
		}
	}
}

func TestSortByTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOf(rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 3))).Draw(t, "keys")
		words := make([]uint64, len(keys))
		for i, key := range keys {
			words[i] = uint64(key)<<32 | uint64(i)
		}
		want := slices.Sorted(slices.Values(words)) // ids rise, so a stable sort is a full sort
		if got := sortByTime(words, make([]uint64, len(words))); !slices.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	})
}

// TestTimeSorter: buckets, however they are chosen, do not change the order.
func TestTimeSorter(t *testing.T) {
	const n = 3*bucketWords + 5
	clock := newSource(3, forClock).epoch(0)
	for name, key := range map[string]func(uint64) uint32{
		"even":  func(h uint64) uint32 { return uint32(h >> 32) },
		"times": func(h uint64) uint32 { return timeKey(exponential(h)) },
		"few":   func(h uint64) uint32 { return uint32(h>>62) << 30 },
		"one":   func(uint64) uint32 { return 1<<32 - 1 },
	} {
		for shape, before := range map[string]func(uint32) float64{
			"even": evenKeys, "times": keyTime,
		} {
			sorter, words := newTimeSorter(n, before), make([]uint64, n)
			for i := range words {
				words[i] = uint64(key(clock.bits(SampleID(i), 0)))<<32 | uint64(i)
				sorter.add(words[i])
			}
			slices.Sort(words) // ids rise, so a stable sort is a full sort
			for _, length := range []int{1, n / 2, n, n + n/2} {
				want := make([]SampleID, length)
				for i := range want {
					want[i] = SampleID(words[i%n])
				}
				again := *sorter
				again.buckets = slices.Clone(sorter.buckets)
				if got := again.ids(length); !slices.Equal(got, want) {
					t.Errorf("keys %s, buckets %s: the first %d are in another order", name, shape, length)
				}
			}
		}
	}
}
