package scheduler

import (
	"runtime"
	"testing"
)

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
