package scheduler

import (
	"slices"
	"testing"
)

// TestChunks: an epoch draws every sample once, chunk by chunk, in an order of chunks that seeds do
// not change, and begins with the chunk that the one before ended with.
func TestChunks(t *testing.T) {
	const samples = 1000
	of := Stripe(samples, Chunks)
	chunksOf := func(seed int64, epoch int) (order []int32) {
		s := mustSampler(
			t, SamplerConfig{Name: "chunks", Samples: samples, Seed: seed, BatchSize: 8, World: 1})
		ids := s.Draw(epoch, nil).IDs
		for _, id := range ids {
			if len(order) == 0 || order[len(order)-1] != of[id] {
				order = append(order, of[id])
			}
		}
		slices.Sort(ids)
		if len(slices.Compact(ids)) != samples {
			t.Errorf("seed %d, epoch %d: some sample is not drawn", seed, epoch)
		}
		return order
	}
	last := int32(-1)
	for epoch := range 3 {
		order := chunksOf(1, epoch)
		if len(order) != Chunks || !slices.Equal(order, chunksOf(2, epoch)) {
			t.Errorf("epoch %d goes through chunks %v, with another seed %v", epoch, order,
				chunksOf(2, epoch))
		}
		if epoch > 0 && order[0] != last {
			t.Errorf("epoch %d begins with chunk %d, the one before ended with %d", epoch, order[0],
				last)
		}
		last = order[len(order)-1]
	}
	a := mustSampler(
		t, SamplerConfig{Name: "chunks", Samples: samples, Seed: 1, BatchSize: 8, World: 1}).Draw(0,
		nil).IDs
	b := mustSampler(
		t, SamplerConfig{Name: "chunks", Samples: samples, Seed: 2, BatchSize: 8, World: 1}).Draw(0,
		nil).IDs
	if slices.Equal(a, b) {
		t.Error("inside a chunk the seed changes nothing")
	}
}
