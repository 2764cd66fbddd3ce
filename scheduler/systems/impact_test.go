package systems

import (
	"slices"
	"testing"

	"rankpool/scheduler/draw"
)

// newWarm returns a bench of IMPACT with six samples, a memory of eight and room for two in S, and
// with the given scores at the cuts of the first epochs. It also returns the last set. begin begins
// the epoch after that.
func newWarm(values Values, epochs ...[]float32) (*bench, []draw.SampleID) {
	b := newBench(&impactSystem, 6, 8, 1, values, nil)
	for e, scores := range epochs {
		b.begin(0, 0, 1, 2, 3, 4, 5)
		b.score(0, scores...)
		b.cut(e + 1)
	}
	return b, b.pool.(*impact).unstable
}

// cut passes the pool the scores at the cut before an epoch.
func (b *bench) cut(epoch int) {
	b.scores[0].TakeCut()
	b.pool.(Evaluator).TakeCut(0, epoch)
}

// Samples 2 and 4 change their ranks.
var restless = [][]float32{{1, 5, 2, 4, 6, 3}, {1, 5, 6, 4, 2, 3}, {1, 5, 2, 4, 6, 3}}

func TestIMPACTRankVariance(t *testing.T) {
	v := newRankVariance(4)
	for _, scores := range [][]float32{{1, 2, 3, 4}, {1, 2, 4, 3}, {2, 1, 4, 3}} {
		v.add(scores)
	}
	want := []uint64{2, 2, 2, 2} // ranks 1 1 2, 2 2 1, 3 4 4, 4 3 3: variance 2/9
	for i := range want {
		if got := v.of(draw.SampleID(i)); got != want[i] {
			t.Errorf("9 times the variance of sample %d is %d, want %d", i, got, want[i])
		}
	}
	v.add([]float32{9, 1, 2, 3}) // sample 0 comes last now
	same(t, "the highest variance", v.top(3, func(draw.SampleID) int64 { return 3 }), 0)
	same(t, "as many as there is room for", v.top(8, func(draw.SampleID) int64 { return 3 }),
		0, 2)
}

func TestIMPACTWarmUp(t *testing.T) {
	b, set := newWarm(nil, restless[:2]...)
	same(t, "the set of two epochs", set, 2, 4)
	if name, _ := b.pool.(Resampler).Resample(0, 2, b.scores[0].Of); name != "uniform" {
		t.Errorf("the sampler of the warm-up is %q, want uniform", name)
	}
	b, set = newWarm(nil, restless...)
	same(t, "the set of three epochs", set, 2, 4)
	if !b.pool.(*impact).ending {
		t.Error("two sets alike did not end the warm-up")
	}
	same(t, "its last epoch has trained on all", b.pool.(Evaluator).Evaluate(0))
	b.begin(0, 0, 1, 2, 3, 4, 5)
	same(t, "S is evaluated in the epoch after it", b.pool.(Evaluator).Evaluate(0), 2, 4)

	changing := [][]float32{
		restless[0], restless[1],
		{6, 5, 2, 4, 1, 3},
		{6, 1, 2, 3, 4, 5},
		{1, 6, 2, 3, 4, 5},
	}
	b, _ = newWarm(Values{"max_warm_up_epochs": 4}, changing[:3]...)
	if b.pool.(*impact).ending {
		t.Error("the warm-up ended with other sets")
	}
	b, _ = newWarm(Values{"max_warm_up_epochs": 4}, changing[:4]...)
	if !b.pool.(*impact).ending {
		t.Error("the warm-up did not end at its limit")
	}
}

func TestIMPACTStableOverlap(t *testing.T) {
	now := []draw.SampleID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	if stable(now[2:], now) {
		t.Error("80 % in common are not over 80 %")
	}
	if !stable(now[1:], now) {
		t.Error("90 % in common are over 80 %")
	}
}

// An epoch has IMPACT's share of the samples unless another is given; iCACHE's is larger.
func TestIMPACTFraction(t *testing.T) {
	for _, c := range []struct {
		system  *System
		values  Values
		sampler string
		want    float64
	}{
		{&impactSystem, nil, "subset", 0.5},
		{&impactSystem, Values{"fraction": 0.9}, "subset", 0.9},
		{&impactSystem, nil, "uniform", 0},
		{&icacheSystem, nil, "subset", 0.7},
		{&icacheHSystem, nil, "selective", 0.7},
		{&rankpoolSystem, nil, "subset", 0}, // the sampler's default
		{&rankpoolSystem, Values{"fraction": 0.9}, "subset", 0.9},
	} {
		cfg := draw.SamplerConfig{Name: c.sampler}
		if c.system.Sample(c.values, &cfg); cfg.Fraction != c.want {
			t.Errorf("%s with %v draws a share of %v by %s, want %v", c.system.Name, c.values,
				cfg.Fraction, c.sampler, c.want)
		}
	}
}

// In the warm-up, what is read first stays: CoorDL's static cache.
func TestIMPACTStaticCaching(t *testing.T) {
	b := newBench(&impactSystem, 6, 3, 1, nil, nil)
	b.begin(0, 0, 1, 2, 3, 4, 5)
	same(t, "first epoch", b.draw(0, 5, 3, 1, 0, 2, 4), "5+", "3+", "1+", "0-", "2-", "4-")
	b.begin(0, 0, 1, 2, 3, 4, 5)
	same(t, "second epoch", b.draw(0, 0, 1, 2, 3, 4, 5), "0-", "1", "2-", "3", "4-", "5")
}

// S has its own memory: it is served whatever the caches hold. They have the rest of the memory.
func TestIMPACTStaticBuffer(t *testing.T) {
	b, _ := newWarm(nil, restless...)
	same(t, "before the warm-up has ended, nothing of S is brought in", b.has())
	b.begin(0, 0, 1, 2, 3, 4, 5)
	if got := b.has(); !slices.Contains(got, 2) || !slices.Contains(got, 4) {
		t.Fatalf("memory has %v, not S", got)
	}
	if bytes, requests := b.memory.Loaded(); bytes != 2 || requests != 2 {
		t.Errorf("S was loaded as %d bytes in %d reads, want each sample by itself", bytes,
			requests)
	}
	c := b.icache()
	if c.capacityBytes != 6 {
		t.Errorf("the caches have %d bytes of 8 beside an S of a quarter", c.capacityBytes)
	}
	same(t, "S is in memory", b.draw(0, 2, 4, 2), "2", "4", "2")
	if c.high.Resident(2) || c.low.in[4] || c.seen[0] != (frequency{}) {
		t.Error("S is in the caches' books")
	}
}

// What the warm-up kept and S does not need goes to the H-cache while it has room.
func TestIMPACTAfterWarmUp(t *testing.T) {
	b := newBench(&impactSystem, 6, 4, 1, Values{"unstable_share": 0.5}, nil)
	for e, scores := range restless {
		b.begin(0, 0, 1, 2, 3, 4, 5)
		b.draw(0, 0, 1, 3, 5)
		b.score(0, scores...)
		b.cut(e + 1)
	}
	b.begin(0, 0, 1, 2, 3, 4, 5)
	// H-cache 1, L-cache 1
	same(t, "S, and the most important one of 0, 1, 3 and 5", b.has(), 1, 2, 4)
}

// Six samples, S = {2, 4}. These are evaluated in an epoch that draws none of them, the others keep
// their history; 4, 1 and 3 are the next epoch; only 1 and 3 are read, and only they get a new loss
// by training that is not S's.
func TestIMPACTFigure7(t *testing.T) {
	// steep enough that the three most important samples are drawn
	b, _ := newWarm(Values{"beta": 40}, restless...)
	b.begin(0)
	same(t, "1: S is evaluated", b.pool.(Evaluator).Evaluate(0), 2, 4)
	b.scores[0].Of[2], b.scores[0].Of[4] = 0.5, 9
	b.cut(4)
	name, weights := b.pool.(Resampler).Resample(0, 4, b.scores[0].Of)
	same(t, "2: the others count by their history", draw.Ranks(weights), 2, 5, 1, 4, 6, 3)
	sampler, err := draw.NewSampler(
		draw.SamplerConfig{
			Name: name, Samples: 6, Seed: 1, BatchSize: 3, World: 1, Fraction: 0.5,
			Floor: draw.NoFloor,
		})
	if err != nil {
		t.Fatal(err)
	}
	ids := slices.Clone(sampler.Draw(4, weights).IDs)
	slices.Sort(ids)
	same(t, "3: the epoch", ids, 1, 3, 4)
	b.begin(0, ids...)
	same(t, "only what is not in S is fetched", b.draw(0, 4, 1), "4", "1+")
	if got := b.draw(0, 3)[0]; got == "3" {
		t.Error("sample 3 was in memory before it was read")
	}
}

// In the default trace the warm-up does not end.
func TestIMPACTGolden(t *testing.T) {
	for file, trace := range map[string]goldenTrace{
		"impact-limit":  {capacity: 80, values: Values{"max_warm_up_epochs": 2}},
		"impact-stable": {capacity: 160, values: Values{"unstable_share": 0.9}},
	} {
		t.Run(file, func(t *testing.T) { golden(t, file, &impactSystem, trace) })
	}
}
