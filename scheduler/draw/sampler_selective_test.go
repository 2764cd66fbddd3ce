package draw

import (
	"math"
	"slices"
	"testing"
)

func TestPower(t *testing.T) {
	for _, y := range []float64{0, 0.33, 0.5, 1, 2, 3.7, 10} {
		for _, x := range []float64{1e-7, 0.1, 0.5, 0.99, 1} {
			if got, want := power(x, y), math.Pow(x, y); math.Abs(got-want) > 2e-6*want {
				t.Errorf("power(%v, %v) = %v, want %v", x, y, got, want)
			}
		}
	}
}

// TestSelectiveDraws checks that the epochs of the warm-up draw every sample once, and that the
// others are those of subset with P = CDF(loss)^beta.
func TestSelectiveDraws(t *testing.T) {
	const samples = 1000
	scores := make([]float32, samples)
	for id := range scores {
		scores[id] = float32(id % 100) // ten samples have each score
	}
	even := mustSampler(
		t, SamplerConfig{Name: "uniform", Samples: samples, Seed: 3, BatchSize: 5, World: 2})
	subset := mustSampler(
		t, SamplerConfig{
			Name: "subset", Samples: samples, Seed: 3, BatchSize: 5, World: 2,
			Fraction: 0.4, Floor: NoFloor,
		})
	weights := make([]float32, samples)
	for id := range weights {
		weights[id] = float32(math.Pow(float64(id%100+1)/100, 2))
	}
	for _, c := range []struct{ warmUp, first int }{{0, 1}, {3, 3}, {-1, 0}} {
		s := mustSampler(
			t, SamplerConfig{
				Name: "selective", Samples: samples, Seed: 3, BatchSize: 5, World: 2,
				Fraction: 0.4, Beta: 2, WarmUp: c.warmUp,
			})
		for epoch := range 5 {
			d, want := s.Draw(epoch, scores), even.Draw(epoch, nil)
			if epoch >= c.first {
				want = subset.Draw(epoch, weights)
			}
			if !slices.Equal(d.IDs, want.IDs) {
				t.Errorf("warm-up %d: epoch %d has other draws than it should, %d of them",
					c.warmUp, epoch, len(d.IDs))
			}
			if d.Weighted() != (epoch >= c.first) {
				t.Errorf("warm-up %d: the draws of epoch %d are weighted: %v", c.warmUp, epoch,
					d.Weighted())
			}
			for id := range SampleID(samples) {
				if got, want := d.Weight(id),
					want.Weight(id); math.Abs(float64(got-want)) > 1e-4*float64(want) {
					t.Fatalf("warm-up %d: the weight of sample %d in epoch %d is %v, want %v",
						c.warmUp, id, epoch, got, want)
				}
			}
		}
	}
}

// TestSelectiveForesees checks that a sample's next draw is predicted for the epoch in which it
// comes, exactly as long as scores do not change, including the first epoch after the warm-up.
func TestSelectiveForesees(t *testing.T) {
	const samples = 500
	scores := make([]float32, samples)
	for id := range scores {
		scores[id] = float32(id*7%samples) / 16
	}
	s := mustSampler(
		t, SamplerConfig{Name: "selective", Samples: samples, Seed: 5, BatchSize: 10, World: 1})
	for epoch := range 3 {
		now, next := s.Draw(epoch, scores), s.Draw(epoch+1, scores)
		drawn := make([]bool, samples)
		for _, id := range next.IDs[:340] { // what comes after may fill the last batch
			drawn[id] = true
		}
		wrong := 0
		for id := range SampleID(samples) {
			if soon := now.Next(id, scores[id]) < float64(epoch+2); drawn[id] && !soon {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("epoch %d: of the draws of the next one, %d were not foreseen", epoch, wrong)
		}
	}
}
