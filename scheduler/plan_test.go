package scheduler

import (
	"runtime"
	"slices"
	"testing"
)

// TestRepeats checks that draws of one sample are counted over all trainers, and that there are no
// repeats if no sample is drawn twice.
func TestRepeats(t *testing.T) {
	p := &Plan{
		Draws:    &Draws{IDs: []SampleID{3, 1, 3, 0, 3, 1}},
		Consumer: []uint16{0, 0, 1, 1, 0, 1},
	}
	for trainer, want := range [][]uint32{{0, 0, 2}, {1, 0, 1}} {
		if got := slices.Collect(p.Repeats(trainer)); !slices.Equal(got, want) {
			t.Errorf("trainer %d: %v, want %v", trainer, got, want)
		}
	}
	if got := slices.Collect((&Plan{Draws: &Draws{}}).Repeats(0)); got != nil {
		t.Errorf("an empty epoch has the repeats %v", got)
	}
}

// TestManyRepeats draws one sample more often than a byte can count.
func TestManyRepeats(t *testing.T) {
	const draws = 1000
	p := &Plan{Draws: &Draws{IDs: make([]SampleID, draws)}, Consumer: make([]uint16, draws)}
	want := uint32(0)
	for got := range p.Repeats(0) {
		if got != want {
			t.Fatalf("draw %d has %d repeats", want, got)
		}
		want++
	}
	if want != draws {
		t.Errorf("%d draws of %d", want, draws)
	}
}

// BenchmarkNewPlan plans an epoch of ImageNet-22k's size for 1,024 ranks on one core.
func BenchmarkNewPlan(b *testing.B) {
	const samples, ranks = 14_200_000, 1024
	world := make([]int32, ranks)
	for t := range world {
		world[t] = int32(t)
	}
	for _, name := range []string{"pads", "torch", "uniform"} {
		b.Run(name, func(b *testing.B) {
			s, err := NewSampler(SamplerConfig{Name: name, Samples: samples, BatchSize: 32, World: ranks})
			if err != nil {
				b.Fatal(err)
			}
			scores := testScores(samples)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			b.ReportAllocs()
			b.ResetTimer()
			for e := range b.N {
				NewPlan(
					PlanConfig{Sampler: s, Samples: samples, BatchSize: 32, World: world, Ranks: ranks}, e, scores)
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/plan")
		})
	}
}
