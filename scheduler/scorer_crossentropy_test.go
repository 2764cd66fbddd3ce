package scheduler

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestCrossEntropy(t *testing.T) {
	tests := []struct {
		name   string
		logits []float32
		label  int
		want   float64
	}{
		{"equal logits of ten classes", make([]float32, 10), 3, math.Log(10)},
		{"one class", []float32{7}, 0, 0},
		{"by hand", []float32{0, float32(math.Log(3))}, 0, math.Log(4)},
		{"large logits", []float32{1000, 999}, 1, 1 + math.Log(1+math.Exp(-1))},
		{"small logits", []float32{-1000, -999}, 0, 1 + math.Log(1+math.Exp(-1))},
		{"a certain error", []float32{500, -500}, 1, 1000},
	}
	for _, tt := range tests {
		if got := CrossEntropy(tt.logits, tt.label); math.Abs(got-tt.want) > 1e-7*(1+tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestCrossEntropyEquations compares with SHADE, Eq. 3 to 5, written out.
func TestCrossEntropyEquations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples, classes := rapid.IntRange(1, 8).Draw(t, "samples"), rapid.IntRange(1, 8).Draw(t, "classes")
		logits := rapid.SliceOfN(rapid.Float32Range(-20, 20), samples*classes, samples*classes).Draw(t, "logits")
		labels := rapid.SliceOfN(rapid.IntRange(0, classes-1), samples, samples).Draw(t, "labels")
		losses := make([]float32, samples)
		mean := CrossEntropies(logits, labels, losses)
		batch := 0.0
		for k, label := range labels {
			row := logits[k*classes : (k+1)*classes]
			denominator := 0.0
			for _, r := range row {
				denominator += math.Exp(float64(r))
			}
			e := 0.0
			for i, r := range row {
				if i == label {
					e -= math.Log(math.Exp(float64(r)) / denominator)
				}
			}
			if math.Abs(float64(losses[k])-e) > 1e-5*(1+e) {
				t.Fatalf("sample %d: %v, want %v", k, losses[k], e)
			}
			batch += e
		}
		if want := batch / float64(samples); math.Abs(mean-want) > 1e-9*(1+want) {
			t.Fatalf("mean %v, want %v", mean, want)
		}
	})
}

func TestCrossEntropyMisuse(t *testing.T) {
	tests := map[string]func(){
		"no such class":    func() { CrossEntropy([]float32{1, 2}, 2) },
		"an empty batch":   func() { CrossEntropies(nil, nil, nil) },
		"a ragged batch":   func() { CrossEntropies(make([]float32, 5), make([]int, 2), make([]float32, 2)) },
		"losses too short": func() { CrossEntropies(make([]float32, 4), make([]int, 2), make([]float32, 1)) },
	}
	for name, f := range tests {
		mustPanic(t, name, f)
	}
}

func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	f()
}
