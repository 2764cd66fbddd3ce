package simulator

import (
	"math"
	"testing"
)

// permutations returns a training of many epochs with losses that carry no information.
func permutations(samples, epochs int) *Trace {
	t := &Trace{}
	row := make([]float32, samples)
	for range epochs {
		t.Losses = append(t.Losses, row)
	}
	return t
}

// lruHitRatio returns the expected share of hits of LRU with c places when epochs are independent
// uniform permutations of n samples.
//
// A sample at place p of an epoch and at place q of the next is a hit if at most c-1 others are
// drawn in between: the n-1-p after it, and those of the q before it that were not among these. The
// q are a uniform subset of the n-1 others, so the number of those that came before place p is
// hypergeometric.
func lruHitRatio(n, c int) float64 {
	logFactorial := make([]float64, n+1)
	for i := 1; i <= n; i++ {
		logFactorial[i] = logFactorial[i-1] + math.Log(float64(i))
	}
	choose := func(n, k int) float64 {
		return logFactorial[n] - logFactorial[k] - logFactorial[n-k]
	}
	sum := 0.0
	for p := n - c; p < n; p++ {
		for q := range n {
			for again := max(0, p+q-(n-1)); again <= min(p, q, p-(n-c)); again++ {
				sum += math.Exp(choose(p, again) + choose(n-1-p, q-again) - choose(n-1, q))
			}
		}
	}
	return sum / float64(n) / float64(n)
}

func TestLRUHitRatioOfSmallCaches(t *testing.T) {
	for _, c := range []struct {
		n, c int
		want float64
	}{
		{1, 1, 1},
		{2, 1, 1. / 4}, // ab|ba: the last and the first
		{2, 2, 1},
		{3, 1, 1. / 9},
		{3, 3, 1},
	} {
		if got := lruHitRatio(c.n, c.c); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%d of %d samples: %v, want %v", c.c, c.n, got, c.want)
		}
	}
}

// TestLRUUnderTorchAgreesWithTheory checks that the mean over epochs lies within four standard
// errors of the expectation.
func TestLRUUnderTorchAgreesWithTheory(t *testing.T) {
	const samples, epochs = 240, 200
	for _, capacity := range []float64{0.1, 0.25, 0.5, 0.75} {
		r := mustRun(
			t, Config{
				Trace: permutations(samples, epochs), System: mustFind(t, "lru"),
				Capacity: capacity, Ranks: 2, BatchSize: 8, SkipEpochs: 1,
			})
		mean, squares := float64(r.Hits)/float64(r.Draws), 0.0
		for _, e := range r.Epochs[1:] {
			hits := 0
			for _, b := range e.Batches {
				hits += int(b.Local + b.Remote)
			}
			squares += math.Pow(float64(hits)/samples-mean, 2)
		}
		sigma := math.Sqrt(squares/(epochs-2)) / math.Sqrt(epochs-1)
		if want := lruHitRatio(samples, int(capacity*samples)); math.Abs(mean-want) > 4*sigma ||
			sigma == 0 {
			t.Errorf("capacity %v: %v ± %v of the draws hit, theory has %v", capacity, mean, sigma,
				want)
		}
	}
}

// TestCoorDLUnderTorchAgreesWithTheory: what is kept never changes and is drawn once per epoch, so
// exactly that many draws hit.
//
// Source: Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021, §5.1.
func TestCoorDLUnderTorchAgreesWithTheory(t *testing.T) {
	for _, capacity := range []float64{0.1, 0.25, 0.5, 1} {
		r := mustRun(
			t, Config{
				Trace: permutations(240, 8), System: mustFind(t, "coordl"),
				Capacity: capacity, Ranks: 2, BatchSize: 8, SkipEpochs: 1,
			})
		if want := int64(capacity * 240 * 7); r.Hits != want || r.Draws != 240*7 {
			t.Errorf("capacity %v: %d hits of %d draws, theory has %d", capacity, r.Hits, r.Draws,
				want)
		}
	}
}

// TestMINOnACycle: on a cycle through n samples, MIN with bypass keeps some c of them forever: c
// hits in every n draws. LRU has none.
//
// Source: Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal
// 1970, has c-1 in every n-1 without bypass.
func TestMINOnACycle(t *testing.T) {
	for name, want := range map[string]int64{"min": 15 * 8, "lru": 0} {
		r := mustRun(
			t, Config{
				Trace: permutations(60, 9), System: mustFind(t, name), Sampler: "sequential",
				Capacity: 0.25, Ranks: 1, BatchSize: 7, SkipEpochs: 1,
			})
		if r.Hits != want {
			t.Errorf("%s: %d hits, theory has %d", name, r.Hits, want)
		}
	}
}
