package draw

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"rankpool/scheduler/schedulertest"
)

// truth returns the time of each sample's first draw in the epochs after epoch, up to 3 of them.
func truth(s Sampler, epoch, samples int, scores []float32) []float64 {
	first := make([]float64, samples)
	for e := epoch + 3; e > epoch; e-- {
		ids := s.Draw(e, scores).IDs
		for i := len(ids) - 1; i >= 0; i-- {
			first[ids[i]] = float64(e) + float64(i)/float64(len(ids))
		}
	}
	return first
}

// TestNext compares the predicted times with the draws of the following epochs, when scores do not
// change.
func TestNext(t *testing.T) {
	const samples, epoch = 8000, 5
	scores := schedulertest.Losses(t)[3]
	tests := []struct {
		name      string
		dropLast  bool
		tolerance float64 // in epochs
		misses    int     // samples that may be further off
	}{
		{"torch", false, 0, 0},
		{"torch", true, 0, 64}, // a sample that the next epoch drops is not exact
		{"torch-sequential", true, 0, 64},
		{"sequential", false, 0, 0},
		{"uniform", false, 5 / math.Sqrt(samples), 0},
		{"uniform", true, 5 / math.Sqrt(samples), 44},
		{"weighted-once", false, 5 / math.Sqrt(samples), 0},
		{"weighted-once", true, 5 / math.Sqrt(samples), 44},
		{"weighted", false, 5 / math.Sqrt(samples), samples / 100},
		{"pads", true, 5 / math.Sqrt(samples), samples / 100},
		{"subset", false, 5 / math.Sqrt(samples), 0},
	}
	for _, tt := range tests {
		cfg := SamplerConfig{
			Name: tt.name, Samples: samples, BatchSize: 16, World: 5,
			DropLast: tt.dropLast,
		}
		if tt.dropLast {
			cfg.BatchSize, cfg.World = 17, 4 // does not divide 8000
		}
		s := mustSampler(t, cfg)
		d := s.Draw(epoch, scores)
		want := truth(s, epoch, samples, scores)
		misses := 0
		for id := range SampleID(samples) {
			got := d.Next(id, scores[id])
			if got < epoch+1 {
				t.Fatalf("%s: sample %d is predicted at %v, in the past", tt.name, id, got)
			}
			if want[id] == 0 { // not within three epochs
				if got < epoch+3.9 {
					misses++
				}
			} else if math.Abs(got-want[id]) > tt.tolerance {
				misses++
			}
		}
		if misses > tt.misses {
			t.Errorf("%s, drop last %v: %d of %d predictions are off by more than %v epochs",
				tt.name, tt.dropLast, misses, samples, tt.tolerance)
		}
	}
}

// TestNextOrder: with unchanged scores, samples come in the predicted order where it depends on
// clocks alone.
func TestNextOrder(t *testing.T) {
	const samples = 8000
	scores := schedulertest.Losses(t)[3]
	for _, name := range []string{"uniform", "weighted-once", "torch", "chunks"} {
		s := mustSampler(t, SamplerConfig{Name: name, Samples: samples, BatchSize: 16, World: 5})
		d := s.Draw(0, scores)
		order := s.Draw(1, scores).IDs
		if !slices.IsSortedFunc(order, func(a, b SampleID) int {
			return cmp.Compare(d.Next(a, scores[a]), d.Next(b, scores[b]))
		}) {
			t.Errorf("%s: the next epoch is not in the predicted order", name)
		}
	}
}

// TestNextFar: samples that are not drawn in 64 epochs come later than all others, in the order of
// their scores.
func TestNextFar(t *testing.T) {
	for _, name := range []string{"weighted", "subset"} {
		cfg := SamplerConfig{Name: name, Samples: 1000, BatchSize: 10, World: 1}
		if lifted := mustSampler(t, cfg).Draw(2, testScores(1000)).Next(7, -1); lifted > 2+64 {
			t.Errorf("%s: a sample at the floor comes at %v", name, lifted)
		}
		cfg.Floor = NoFloor
		d := mustSampler(t, cfg).Draw(2, testScores(1000))
		rare, rarer, zero := d.Next(5, 1e-9), d.Next(6, 1e-10), d.Next(7, 0)
		if !(rare > 2+64 && rarer > rare && !math.IsInf(rarer, 1) && math.IsInf(zero, 1)) {
			t.Errorf("%s: times %v, %v, %v", name, rare, rarer, zero)
		}
		if certain := d.Next(7, 1e9); certain >= 4 {
			t.Errorf("%s: a certain sample comes at %v", name, certain)
		}
	}
	// At a rate of 1/40 one sample in five is not drawn in 64 epochs; its time is then 40 epochs, the
	// mean, after them.
	equal := mustSampler(t, SamplerConfig{Name: "weighted", Samples: 1000, BatchSize: 10, World: 1})
	d, late := equal.Draw(2, make([]float32, 1000)), 0
	f := d.forecast.(weightedForecast)
	f.rates = rates{perScore: 1}
	for id := range SampleID(1000) {
		switch at := f.next(id, 1.0/40); {
		case at >= 2+1+64+39.9:
			late++
		case at >= 2+1+64:
			t.Errorf(
				"sample %d comes at %v, after the epochs that were searched and before their mean",
				id, at)
		}
	}
	if late < 140 || late > 260 { // 1000 e^(-64/40) = 202
		t.Errorf("%d of 1000 samples are not met in 64 epochs", late)
	}
	dropped := mustSampler(
		t, SamplerConfig{Name: "sequential", Samples: 10, BatchSize: 4, World: 1, DropLast: true})
	if got := dropped.Draw(0, nil).Next(9, 0); !math.IsInf(got, 1) {
		t.Errorf("sequential: a sample that is always dropped comes at %v", got)
	}
}

// TestEffective checks the effective number of samples by hand.
func TestEffective(t *testing.T) {
	for _, tt := range []struct {
		name   string
		scores []float32
		want   float64
	}{
		{"uniform", []float32{1, 2, 3, 4}, 4},
		{"weighted", []float32{5, 5, 5, 5}, 4},
		{"weighted", []float32{1, 1, 1, 5}, 64.0 / 28},
		{"weighted", []float32{-3, -3, -3, -3}, 4},
	} {
		s := mustSampler(t, SamplerConfig{Name: tt.name, Samples: 4, BatchSize: 2, World: 1})
		if got := s.Draw(0, tt.scores).Effective(4); math.Abs(got-tt.want) > 1e-5 {
			t.Errorf("%s: %v have %v effective samples, want %v", tt.name, tt.scores, got, tt.want)
		}
	}
}

// TestWeight checks 1/(N q) by hand.
func TestWeight(t *testing.T) {
	tests := []struct {
		name     string
		floor    float64
		weighted bool
		want     []float32 // q by hand, N = 4
	}{
		{"weighted", NoFloor, true, []float32{2.5, 1.25, 5.0 / 14, 0}}, // q = .1, .2, .7, 0
		// p = 1/3, 2/3, 1 (cut off), 0: two of the four
		{"subset", NoFloor, true, []float32{1.5, 0.75, 0.5, 0}},
		// the mean is m = (m/2 + 2 + 7 + m/2) / 4 = 3, and the least score m/2
		{"weighted", 0.5, true, []float32{2, 1.5, 3.0 / 7, 2}},
		{"weighted", 1, true, []float32{1, 1, 1, 1}},
		{"weighted-once", 0, false, []float32{1, 1, 1, 1}},
		{"uniform", 0, false, []float32{1, 1, 1, 1}},
		{"torch", 0, false, []float32{1, 1, 1, 1}},
		{"sequential", 0, false, []float32{1, 1, 1, 1}},
	}
	for _, tt := range tests {
		s := mustSampler(t, SamplerConfig{
			Name: tt.name, Samples: 4, BatchSize: 2, World: 1, Fraction: 0.5, Floor: tt.floor,
		})
		d := s.Draw(0, []float32{1, 2, 7, 0})
		if d.Weighted() != tt.weighted {
			t.Errorf("%s: Weighted is %v", tt.name, d.Weighted())
		}
		for id, want := range tt.want {
			if got := d.Weight(SampleID(id)); math.Abs(float64(got-want)) > 1e-6 {
				t.Errorf("%s: sample %d has the weight %v, want %v", tt.name, id, got, want)
			}
		}
	}
}

// testScores returns scores that look like losses: most of them small, a few large.
func testScores(n int) []float32 {
	clock := newSource(1, 99).epoch(0)
	scores := make([]float32, n)
	for i := range scores {
		e := exponential(clock.bits(SampleID(i), 0))
		scores[i] = float32(e * e)
	}
	return scores
}
