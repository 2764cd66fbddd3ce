package draw

import (
	"math"
	"testing"
)

// These tests draw fixed epochs, so they always give the same result; the bounds are 5 standard
// deviations.

// uniformity returns the chi-square statistic of samples falling into places, both cut into cells ×
// cells, as a number of standard deviations from its mean.
func uniformity(t *testing.T, s Sampler, samples, cells, epochs int, scores []float32) float64 {
	t.Helper()
	count := make([]float64, cells*cells)
	total := 0.0
	for e := range epochs {
		ids := s.Draw(e, scores).IDs
		for place, id := range ids {
			count[int(id)*cells/samples*cells+place*cells/len(ids)]++
			total++
		}
	}
	chi := 0.0
	want := total / float64(len(count))
	for _, n := range count {
		chi += (n - want) * (n - want) / want
	}
	freedom := float64((cells - 1) * (cells - 1))
	return (chi - freedom) / math.Sqrt(2*freedom)
}

func TestPermutationsAreUniform(t *testing.T) {
	const samples, cells, epochs = 1024, 16, 50
	for _, name := range []string{"torch", "uniform", "weighted-once", "subset", "sequential"} {
		s := mustSampler(
			t, SamplerConfig{Name: name, Samples: samples, BatchSize: 1, World: 1, Fraction: 1})
		z := uniformity(t, s, samples, cells, epochs, make([]float32, samples))
		if name == "sequential" { // it must fail, which shows that the test can
			if z < 100 {
				t.Errorf("sequential looks random, %.1f standard deviations", z)
			}
			continue
		}
		if math.Abs(z) > 5 {
			t.Errorf("%s is %.1f standard deviations from uniform", name, z)
		}
	}
}

// TestSmallPermutations: all 24 orders of 4 samples are equally likely.
func TestSmallPermutations(t *testing.T) {
	const epochs = 9_600
	for _, name := range []string{"torch", "uniform", "weighted-once"} {
		s := mustSampler(t, SamplerConfig{Name: name, Samples: 4, BatchSize: 1, World: 1})
		count := make(map[[4]SampleID]int)
		for e := range epochs {
			count[[4]SampleID(s.Draw(e, []float32{1, 1, 1, 1}).IDs)]++
		}
		for order, n := range count {
			if math.Abs(float64(n)-epochs/24) > 5*math.Sqrt(epochs/24) {
				t.Errorf("%s: the order %v comes %d times of %d", name, order, n, epochs)
			}
		}
		if len(count) != 24 {
			t.Errorf("%s makes %d orders", name, len(count))
		}
	}
}

// TestShares: a sample's share of the draws matches its Weight, 1/(N q), and the weighted mean of
// the losses of the draws is the mean loss of the samples, for losses of any sign.
func TestShares(t *testing.T) {
	const samples, epochs = 200, 600
	for what, change := range map[string]func(id int, score float32) float32{
		"positive": func(_ int, score float32) float32 { return score },
		"zeros":    func(id int, score float32) float32 { return score * float32(id%2) },
		"negative": func(_ int, score float32) float32 { return -1 - score },
		"mixed":    func(_ int, score float32) float32 { return score - 1 },
		"outliers": func(id int, score float32) float32 { return score + 1e6*float32(id/198) },
	} {
		scores := testScores(samples)
		for id := range scores {
			scores[id] = change(id, scores[id])
		}
		for _, name := range []string{"weighted", "pads", "subset", "uniform", "weighted-once"} {
			t.Run(what+"/"+name, func(t *testing.T) {
				checkShares(t, mustSampler(t, SamplerConfig{
					Name: name, Samples: samples, BatchSize: 1, World: 1, Seed: 3,
				}), scores, epochs)
			})
		}
	}
}

func checkShares(t *testing.T, s Sampler, scores []float32, epochs int) {
	t.Helper()
	count := make([]float64, len(scores))
	total, losses, squares := 0.0, 0.0, 0.0
	var d *Draws
	for e := range epochs {
		d = s.Draw(e, scores)
		for _, id := range d.IDs {
			x := float64(d.Weight(id)) * float64(scores[id])
			count[id], total, losses, squares = count[id]+1, total+1, losses+x, squares+x*x
		}
	}
	mean := 0.0
	for id, n := range count {
		mean += float64(scores[id]) / float64(len(scores))
		want := total / float64(len(scores)) / float64(d.Weight(SampleID(id)))
		if math.Abs(n-want) > 5*math.Sqrt(want)+1 {
			t.Errorf("sample %d is drawn %v times, want %.1f", id, n, want)
		}
	}
	got := losses / total
	deviation := math.Sqrt(max(squares/total-got*got, 0) / total)
	if math.Abs(got-mean) > 5*deviation+1e-6*math.Abs(mean) {
		t.Errorf("the mean loss of the draws is %v ± %v, that of the samples %v", got, deviation,
			mean)
	}
}

// TestMultinomial: draws with replacement are independent of each other: the number of draws of a
// sample in an epoch has the variance of the multinomial distribution, and the last place follows
// the same law as the first.
func TestMultinomial(t *testing.T) {
	const samples, epochs = 20, 5000
	scores := make([]float32, samples)
	for i := range scores {
		scores[i] = 1
	}
	scores[7] = 21 // half of all
	s := mustSampler(
		t, SamplerConfig{Name: "weighted", Samples: samples, BatchSize: samples, World: 1})
	const share = 21.0 / 40
	squares, first, last, pairs := 0.0, 0.0, 0.0, 0.0
	for e := range epochs {
		ids := s.Draw(e, scores).IDs
		n := 0.0
		for i, id := range ids {
			if id == 7 {
				n++
				if i > 0 && ids[i-1] == 7 {
					pairs++
				}
			}
		}
		squares += (n - samples*share) * (n - samples*share)
		if ids[0] == 7 {
			first++
		}
		if ids[samples-1] == 7 {
			last++
		}
	}
	near := func(what string, got, want, tolerance float64) {
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s is %.4f, want %.4f ± %.4f", what, got, want, tolerance)
		}
	}
	variance := samples * share * (1 - share)
	near("the variance", squares/epochs, variance, 5*variance*math.Sqrt(2.0/epochs))
	near("the share of the first place", first/epochs, share, 5*0.5/math.Sqrt(epochs))
	near("the share of the last place", last/epochs, share, 5*0.5/math.Sqrt(epochs))
	near("the share of neighbours", pairs/epochs/(samples-1), share*share,
		5*0.7/math.Sqrt(epochs*(samples-1)))
}

// TestOnceOrder: without replacement the first draw is in proportion to the scores, and the second
// in proportion to those of the others.
func TestOnceOrder(t *testing.T) {
	const epochs = 10_000
	scores := []float32{1, 2, 5, 0}
	s := mustSampler(t, SamplerConfig{Name: "weighted-once", Samples: 4, BatchSize: 1, World: 1})
	count := make(map[[2]SampleID]float64)
	for e := range epochs {
		ids := s.Draw(e, scores).IDs
		count[[2]SampleID(ids[:2])]++
		if ids[3] != 3 {
			t.Fatalf("epoch %d: the sample with score 0 comes before others: %v", e, ids)
		}
	}
	for a := range SampleID(3) {
		for b := range SampleID(3) {
			if a == b {
				continue
			}
			p := float64(scores[a]) / 8 * float64(scores[b]) / (8 - float64(scores[a]))
			if got := count[[2]SampleID{a, b}]; math.Abs(got-epochs*p) > 5*math.Sqrt(epochs*p) {
				t.Errorf("%d, then %d: %v times, want %.0f", a, b, got, epochs*p)
			}
		}
	}
}

// TestOnceZeros: samples with score 0 come last, in an order of their own in each epoch.
func TestOnceZeros(t *testing.T) {
	const epochs = 1000
	s := mustSampler(t, SamplerConfig{Name: "weighted-once", Samples: 3, BatchSize: 1, World: 1})
	swapped := 0
	for e := range epochs {
		ids := s.Draw(e, []float32{0, 1e-30, 0}).IDs
		if ids[0] != 1 {
			t.Fatalf("epoch %d: a sample with score 0 comes first", e)
		}
		if ids[1] == 2 {
			swapped++
		}
	}
	if math.Abs(float64(swapped)-epochs/2) > 5*math.Sqrt(epochs)/2 {
		t.Errorf("the second sample of two is first in %d of %d epochs", swapped, epochs)
	}
}

// TestSubsetSize: the expected size is the fraction of the samples, also when many scores are cut
// off, and samples at p = 1 are always in.
func TestSubsetSize(t *testing.T) {
	const samples, epochs = 4000, 40
	for _, fraction := range []float64{0, 0.2, 0.9} {
		want := fraction
		if fraction == 0 {
			want = 0.7
		}
		s := mustSampler(
			t, SamplerConfig{
				Name: "subset", Samples: samples, BatchSize: 1, World: 1,
				Fraction: fraction,
			})
		scores := testScores(samples)
		scores[11] = 1e6
		total := 0
		for e := range epochs {
			ids := s.Draw(e, scores).IDs
			total += len(ids)
			in := false
			for _, id := range ids {
				in = in || id == 11
			}
			if !in {
				t.Errorf("fraction %v, epoch %d: the most important sample is not in", fraction, e)
			}
		}
		if got := float64(total) / samples / epochs; math.Abs(got-want) > 5*0.5/math.Sqrt(
			samples*epochs) {
			t.Errorf("fraction %v: %.4f of the samples are in, want %v", fraction, got, want)
		}
	}
}

// TestSubsetOfFew: with fewer positive scores than the fraction requires, all of them are drawn;
// and if by chance none is, all samples are.
func TestSubsetOfFew(t *testing.T) {
	scores := make([]float32, 100)
	for id := range 10 {
		scores[id*10] = float32(id) + 1
	}
	s := mustSampler(t, SamplerConfig{
		Name: "subset", Samples: 100, BatchSize: 1, World: 1, Floor: NoFloor,
	})
	if got := len(s.Draw(0, scores).IDs); got != 10 {
		t.Errorf("%d of 10 samples are in", got)
	}
	tiny := mustSampler(
		t, SamplerConfig{Name: "subset", Samples: 2, BatchSize: 1, World: 1, Fraction: 0.01})
	all := 0
	for e := range 100 {
		if len(tiny.Draw(e, []float32{1, 1}).IDs) == 2 {
			all++
		}
	}
	if all < 90 {
		t.Errorf("of 100 epochs of an improbable subset %d have all samples", all)
	}
}
