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

// TestSHADEEq3 has the loss of a sample be -Σ T_i log S_i over classes, T its label's one-hot vector and S of Eq. 4.
func TestSHADEEq3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-20, 20), 1, 8).Draw(t, "logits")
		label := rapid.IntRange(0, len(logits)-1).Draw(t, "label")
		truth := make([]float64, len(logits))
		truth[label] = 1
		want := 0.0
		for i, s := range softmax(logits) {
			want -= truth[i] * math.Log(s)
		}
		if got := CrossEntropy(logits, label); math.Abs(got-want) > 1e-9*(1+want) {
			t.Fatalf("logits %v, label %d: %v, want %v", logits, label, got, want)
		}
	})
}

// TestSHADEEq4 has e^-E over all labels be the softmax: positive though logits are negative, and 1 in sum.
func TestSHADEEq4(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-20, 20), 1, 8).Draw(t, "logits")
		sum := 0.0
		for i, want := range softmax(logits) {
			got := math.Exp(-CrossEntropy(logits, i))
			if !(got > 0) || math.Abs(got-want) > 1e-9*want {
				t.Fatalf("logits %v, class %d: probability %v, want %v", logits, i, got, want)
			}
			sum += got
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("logits %v: the probabilities sum to %v", logits, sum)
		}
	})
}

// softmax is Eq. 4 as it stands in the paper; it overflows for large logits.
func softmax(logits []float32) []float64 {
	denominator := 0.0
	for _, r := range logits {
		denominator += math.Exp(float64(r))
	}
	s := make([]float64, len(logits))
	for i, r := range logits {
		s[i] = math.Exp(float64(r)) / denominator
	}
	return s
}

// TestSHADEEq5 has the loss of a mini-batch be the mean of its samples'.
func TestSHADEEq5(t *testing.T) {
	scorer := mustScorer(t, "batchloss")
	rapid.Check(t, func(t *rapid.T) {
		samples, classes := rapid.IntRange(1, 8).Draw(t, "samples"), rapid.IntRange(1, 8).Draw(t, "classes")
		logits := rapid.SliceOfN(rapid.Float32Range(-20, 20), samples*classes, samples*classes).Draw(t, "logits")
		labels := rapid.SliceOfN(rapid.IntRange(0, classes-1), samples, samples).Draw(t, "labels")
		losses := make([]float32, samples)
		mean := CrossEntropies(logits, labels, losses)
		sum := 0.0
		for k, label := range labels {
			e := CrossEntropy(logits[k*classes:(k+1)*classes], label)
			if losses[k] != float32(e) {
				t.Fatalf("sample %d: %v, want %v", k, losses[k], e)
			}
			sum += e
		}
		want := sum / float64(samples)
		if math.Abs(mean-want) > 1e-9*(1+want) {
			t.Fatalf("mean %v, want %v", mean, want)
		}
		coarse := make([]float32, samples)
		scorer.Score(Report{Losses: losses}, coarse)
		for k := range coarse {
			if math.Abs(float64(coarse[k])-want) > 1e-6*(1+want) {
				t.Fatalf("the coarse score of sample %d is %v, want %v", k, coarse[k], want)
			}
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
