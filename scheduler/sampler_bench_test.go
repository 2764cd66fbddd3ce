package scheduler

import (
	"strconv"
	"testing"
)

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

// eachSampler runs a benchmark of every sampler.
func eachSampler(
	b *testing.B, samples, world int, run func(b *testing.B, s Sampler, scores []float32),
) {
	scores := testScores(samples)
	for _, name := range SamplerNames() {
		b.Run(name, func(b *testing.B) {
			run(b, mustSampler(b, SamplerConfig{
				Name: name, Samples: samples, BatchSize: 64, World: world,
			}), scores)
		})
	}
}

func BenchmarkDraw(b *testing.B) {
	const samples = 1_420_000
	eachSampler(b, samples, 64, func(b *testing.B, s Sampler, scores []float32) {
		b.ReportAllocs()
		for e := range b.N {
			s.Draw(e, scores)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/samples, "ns/sample")
	})
}

func BenchmarkNext(b *testing.B) {
	const samples = 100_000
	eachSampler(b, samples, 4, func(b *testing.B, s Sampler, scores []float32) {
		d := s.Draw(0, scores)
		sum := d.Next(0, 1)
		b.ResetTimer()
		for i := range b.N {
			id := SampleID(i % samples)
			sum += d.Next(id, scores[id])
		}
		if sum == 0 {
			b.Fatal("all times are 0")
		}
	})
}

func BenchmarkAssign(b *testing.B) {
	const samples = 1_420_000
	s := mustSampler(b, SamplerConfig{
		Name: "uniform", Samples: samples, BatchSize: 64, World: 1024,
	})
	ids := s.Draw(0, nil).IDs
	scores := testScores(samples)
	prefer := func(id SampleID) float32 { return scores[id] }
	for _, ranks := range []int{4, 64, 1024} {
		b.Run(strconv.Itoa(ranks), func(b *testing.B) {
			world := make([]int32, ranks)
			for t := range world {
				world[t] = int32(t)
			}
			consumer := make([]uint16, len(ids))
			b.ReportAllocs()
			for range b.N {
				Assign(ids, world, ranks, 64, AssignLocal, prefer, consumer)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)),
				"ns/draw")
		})
	}
}
