package systems

import (
	"testing"

	"rankpool/scheduler/draw"
)

// TestCoorDLMinIO compares MinIO with theory: under torch, each epoch after the first hits exactly
// what fits, at any number of ranks, and each sample stays on the rank that read it first while
// that rank has room.
func TestCoorDLMinIO(t *testing.T) {
	const samples, epochs, globalBatch = 240, 5, 24
	for _, ranks := range []int{1, 4} {
		for _, capacity := range []int64{4, 24, 96, 240} {
			memory := NewMemory(samples, ranks, capacity,
				func(draw.SampleID) int64 { return 1 })
			cfg := PoolConfig{
				Samples: samples, Jobs: 1, Ranks: ranks, Memory: memory,
				Scores: []*Scores{{Of: make([]float32, samples), Known: make([]bool, samples)}},
			}
			pool := NewPolicyPool(cfg, minIO{})
			sampler, err := draw.NewSampler(
				draw.SamplerConfig{
					Name: "torch", Samples: samples, Seed: 3,
					BatchSize: globalBatch / ranks, World: ranks,
				})
			if err != nil {
				t.Fatal(err)
			}
			for epoch := range epochs {
				hits := int64(0)
				ids := sampler.Draw(epoch, nil).IDs
				pool.Begin(0, epoch, ids)
				for at := 0; at < len(ids); at += globalBatch {
					b := &Batch{
						Epoch: epoch, IDs: ids[at : at+globalBatch],
						Rank: make([]int32, globalBatch), Next: make([]float64, globalBatch),
					}
					for i := range b.Rank {
						b.Rank[i] = int32(i % ranks)
					}
					answers := make([]Answer, globalBatch)
					pool.Batch(b, answers)
					for i, a := range answers {
						if !a.Read {
							hits++
						}
						if epoch == 0 && int64(at+i) < capacity &&
							memory.Home(b.IDs[i]) != int(b.Rank[i]) {
							t.Errorf("%d ranks, capacity %d: rank %d read sample %d first, rank "+
								"%d has it", ranks, capacity, b.Rank[i], b.IDs[i],
								memory.Home(b.IDs[i]))
						}
					}
				}
				if want := map[bool]int64{true: 0, false: capacity}[epoch == 0]; hits != want {
					t.Errorf("%d ranks, capacity %d, epoch %d: %d hits, want %d", ranks, capacity,
						epoch, hits, want)
				}
			}
		}
	}
}
