package systems

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

const followedSamples = 120

// followedConfig returns the configuration of ranks with a number of trainers, in batches of 12.
func followedConfig(trainers int, capacityBytes int64) ChooserConfig {
	labels := make([]int32, followedSamples)
	for id := range labels {
		labels[id] = int32(id % 3)
	}
	return ChooserConfig{
		System: &spiderCacheSystem, World: make([]int32, trainers), Ranks: 1, Epochs: 12,
		CapacityBytes: capacityBytes, Values: Values{"alpha": 0.9, "r_start": 0.8, "r_end": 0.4},
		Sampler: draw.SamplerConfig{
			Samples: followedSamples, Seed: 3, BatchSize: 12 / trainers, World: trainers,
		},
		Size: func(draw.SampleID) int64 { return 1 }, Initial: 1, Labels: labels,
		Dimensions: 2,
	}
}

// follow trains epochs on ranks, and returns what is learned by the cut of the last one.
func follow(t *testing.T, cfg ChooserConfig, learned []byte, from, to int) ([]byte, []string) {
	t.Helper()
	l, err := NewFollower(cfg)
	if err == nil {
		err = l.Begin(nil, learned)
	}
	if err != nil {
		t.Fatal(err)
	}
	if learned == nil {
		learned = l.Cut(nil, unknown)()
	}
	var served []string
	for epoch := from; epoch < to; epoch++ {
		d := chooseEpoch(t, cfg, learned, epoch)
		l.Open(&plan.Plan{Draws: d}, protocol.Known(learned))
		var text strings.Builder
		for i, id := range d.IDs {
			text.WriteString(" " + string(rune('a'+id)))
			if d.Substituted(i) {
				text.WriteString("!")
			}
		}
		served = append(served, text.String())
		for b, ids := range slices.Collect(slices.Chunk(d.IDs, 12)) {
			f := protocol.Folded{Epoch: epoch, Batch: b, IDs: ids}
			for _, id := range ids {
				f.Losses = append(f.Losses, float32(id%7)/float32(2+epoch))
				f.Embeddings = append(f.Embeddings, float32(id%9)*10, float32(id)/float32(10+epoch))
			}
			l.Learn(f, nil)
		}
		learned = l.Cut(nil, unknown)()
	}
	return learned, served
}

func chooseEpoch(t *testing.T, cfg ChooserConfig, learned []byte, epoch int) *draw.Draws {
	t.Helper()
	c, err := NewChooser(cfg)
	if err == nil {
		err = c.Begin(learned)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.Draw(epoch, protocol.EqualScores(followedSamples, 1))
}

// TestFollowerGoesOn checks that a follower that begins with what another one learned continues
// like that one, even with fewer processes.
func TestFollowerGoesOn(t *testing.T) {
	half, _ := follow(t, followedConfig(4, 24), nil, 0, 6)
	want, served := follow(t, followedConfig(4, 24), half, 6, 10)
	if !strings.Contains(strings.Join(served, ""), "!") {
		t.Fatal("nothing is substituted: this test says too little")
	}
	for _, trainers := range []int{2, 1} {
		got, other := follow(t, followedConfig(trainers, 24), half, 6, 10)
		if !slices.Equal(other, served) || !slices.Equal(got, want) {
			t.Errorf("%d trainers continue otherwise than four", trainers)
		}
	}
	if _, anew := follow(t, followedConfig(4, 24), nil, 6, 7); anew[0] == served[0] {
		t.Error("what was learned does not matter, so this test says nothing")
	}
}

// TestFollowerOfSomethingElse checks that chooser and follower alike refuse what was learned with
// another memory or other embeddings, or is damaged, or at worst choose another epoch.
func TestFollowerOfSomethingElse(t *testing.T) {
	cfg := followedConfig(2, 24)
	learned, _ := follow(t, cfg, nil, 0, 7)
	begin := func(cfg ChooserConfig, learned []byte) error {
		c, err := NewChooser(cfg)
		if err == nil {
			err = c.Begin(learned)
		}
		l, err2 := NewFollower(cfg)
		if err2 == nil {
			if err2 = l.Begin(nil, learned); (err2 == nil) != (err == nil) {
				t.Fatalf("who chooses says %v, who follows %v", err, err2)
			}
		}
		if err == nil {
			c.Draw(7, protocol.EqualScores(followedSamples, 1))
		}
		return err
	}
	if err := begin(followedConfig(2, 23), learned); err == nil ||
		!strings.Contains(err.Error(), "a memory of 24 bytes") {
		t.Errorf("with less memory: %v", err)
	}
	other := cfg
	if other.Dimensions = 3; begin(other, learned) == nil {
		t.Error("embeddings of two numbers are taken for some of three")
	}
	for n := 0; n < len(learned); n += 1 + n/8 {
		if begin(cfg, learned[:n:n]) == nil {
			t.Fatalf("the first %d bytes of %d are taken", n, len(learned))
		}
	}
	for i := range learned {
		if i < 4 || i > 64 && i < len(learned)-700 && i%97 > 0 {
			continue // the number of processes may be large; embeddings are many bytes
		}
		hurt := slices.Clone(learned)
		hurt[i] ^= 0xff
		_ = begin(cfg, hurt) // another epoch, at worst
	}
	for _, missing := range []func(*ChooserConfig){
		func(c *ChooserConfig) { c.Dimensions = 0 },
		func(c *ChooserConfig) { c.Labels = c.Labels[1:] },
	} {
		less := cfg
		missing(&less)
		_, err := NewChooser(less)
		if _, err2 := NewFollower(less); err == nil || err2 == nil {
			t.Errorf("without what it needs: %v, %v", err, err2)
		}
	}
}

// TestEmbeddingsThatDoNotCount checks that a sample keeps its embedding if a new one does not
// count.
func TestEmbeddingsThatDoNotCount(t *testing.T) {
	cfg := followedConfig(1, 24)
	nan := float32(0)
	nan /= nan
	learn := func(more ...protocol.Folded) []byte {
		l, err := NewFollower(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range append([]protocol.Folded{{
			IDs: []draw.SampleID{4, 5}, Losses: []float32{1, 2}, Embeddings: []float32{1, 2, 3, 4},
		}}, more...) {
			l.Learn(f, nil)
		}
		return l.Cut(nil, unknown)()
	}
	// the loss of neither counts
	missing := protocol.Folded{
		IDs: []draw.SampleID{4, 6}, Losses: []float32{nan, nan},
		Embeddings: []float32{nan, 7, 8, nan},
	}
	if !slices.Equal(learn(missing), learn()) {
		t.Error("an embedding with a number that is not finite counts")
	}
	missing.Embeddings = []float32{5, 7, 8, nan}
	if slices.Equal(learn(missing), learn()) {
		t.Error("an embedding whose loss does not count does not count either")
	}
}

// TestCutCopiesNothing checks that what was learned is copied only when its bytes are asked for,
// and is then as it was at the cut. For 20,000 samples with 64 numbers these are 5 MB.
func TestCutCopiesNothing(t *testing.T) {
	cfg := followedConfig(1, 24)
	const samples = 20000
	cfg.Sampler.Samples, cfg.Labels, cfg.Dimensions = samples, make([]int32, samples), 64
	l, err := NewFollower(cfg)
	if err != nil {
		t.Fatal(err)
	}
	all := protocol.Folded{
		Losses: make([]float32, samples), Embeddings: make([]float32, samples*cfg.Dimensions),
	}
	for id := range draw.SampleID(samples) {
		all.IDs = append(all.IDs, id)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l.Learn(all, nil)
	first := l.Cut(nil, unknown)
	l.Open(&plan.Plan{Draws: &draw.Draws{}}, first)
	l.Learn(protocol.Folded{
		IDs: all.IDs[:1], Losses: []float32{3}, Embeddings: slices.Repeat([]float32{1}, 64),
	}, nil)
	second := l.Cut(nil, unknown)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("two cuts took %d bytes", n)
	}
	a, b := first(), second()
	if len(a) != len(b) || len(a) < 4*samples*cfg.Dimensions || slices.Equal(a, b) {
		t.Errorf("cuts of %d and %d bytes", len(a), len(b))
	}
	if !slices.Equal(first(), a) || !slices.Equal(second(), b) {
		t.Error("what was learned at a cut changes")
	}
}

// TestOptionsOfRanks checks that ranks refuse what only the simulator can do.
func TestOptionsOfRanks(t *testing.T) {
	for by, want := range map[float64]bool{0: true, 1: false} {
		if err := spiderCacheSystem.CheckLive(Values{"by_batch": by}); (err == nil) != want {
			t.Errorf("by_batch=%v: %v", by, err)
		}
	}
}

// TestMemoryPart checks that regions hold the same samples, whatever their size.
func TestMemoryPart(t *testing.T) {
	for _, c := range []struct{ first, rest, capacity, want int64 }{
		{1, 1, 100, 86},
		{3, 3, 300, 258},
		{7, 7, 700, 602},
		{2, 3, 300, 259}, // they differ: to a byte
	} {
		m := NewMemory(10, 1, c.capacity, func(id draw.SampleID) int64 {
			if id == 0 {
				return c.first
			}
			return c.rest
		})
		if got := m.Part(0.865, c.capacity); got != c.want {
			t.Errorf("0.865 of %d bytes of samples of %d and %d are %d, want %d", c.capacity, c.first,
				c.rest, got, c.want)
		}
	}
}
