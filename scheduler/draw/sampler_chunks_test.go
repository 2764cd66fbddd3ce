package draw

import (
	"math"
	"slices"
	"testing"
)

// TestChunks: an epoch draws every sample once, chunk by chunk, in an order of chunks that does not
// depend on the seed, and begins with the chunk that the previous epoch ended with.
func TestChunks(t *testing.T) {
	const samples = 1000
	chunksOf := func(seed int64, epoch int) (order []int) {
		s := mustSampler(
			t, SamplerConfig{Name: "chunks", Samples: samples, Seed: seed, BatchSize: 8, World: 1})
		ids := s.Draw(epoch, nil).IDs
		for _, id := range ids {
			if c := chunkOf(id, Chunks); len(order) == 0 || order[len(order)-1] != c {
				order = append(order, c)
			}
		}
		slices.Sort(ids)
		if len(slices.Compact(ids)) != samples {
			t.Errorf("seed %d, epoch %d: some sample is not drawn", seed, epoch)
		}
		return order
	}
	last := -1
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

// TestChunkHasAllClasses: a chunk has its share of every class, within four standard deviations,
// whether classes follow each other, as in a folder, or alternate.
func TestChunkHasAllClasses(t *testing.T) {
	const classes, each, share = 100, 500, 500 / Chunks
	for order, classOf := range map[string]func(i int) int{
		"following":   func(i int) int { return i / each },
		"alternating": func(i int) int { return i % classes },
	} {
		var counts [Chunks][classes]int
		for i := range classes * each {
			counts[chunkOf(SampleID(i), Chunks)][classOf(i)]++
		}
		for c := range counts {
			for class, n := range counts[c] {
				if math.Abs(float64(n-share)) > 4*math.Sqrt(share) {
					t.Errorf("%s: chunk %d has %d of %d samples of class %d", order, c, n, each, class)
				}
			}
		}
	}
}

// TestFirstChunk: training draws the same cycle of chunks from another first chunk, each sample
// once per epoch, and NextChunk is right everywhere.
func TestFirstChunk(t *testing.T) {
	const samples = 1000
	for first := range Chunks {
		cfg := SamplerConfig{
			Name: "chunks", Samples: samples, Seed: 1, BatchSize: 20, World: 1, FirstChunk: first,
		}
		s := mustSampler(t, cfg)
		var order []int // of chunks, of all epochs
		for epoch := range Chunks + 2 {
			ids := s.Draw(epoch, nil).IDs
			for i := 0; i < samples; i += samples / Chunks {
				order = append(order, chunkOf(ids[i], Chunks))
			}
			slices.Sort(ids)
			if len(slices.Compact(ids)) != samples {
				t.Errorf("first chunk %d, epoch %d: some sample is not drawn", first, epoch)
			}
		}
		if order[0] != first {
			t.Errorf("training begins with chunk %d, not with %d", order[0], first)
		}
		const batches = samples / 20
		for place, next := range order[1:] {
			epoch, batch := place/Chunks, place%Chunks*batches/Chunks
			for b := batch; b < batch+batches/Chunks; b++ {
				if got := NextChunk(cfg, epoch, b, batches); got != next {
					t.Errorf("first chunk %d, epoch %d, batch %d: the next chunk is %d, not %d", first,
						epoch, b, next, got)
				}
			}
		}
	}
	for name, first := range map[string]int{"chunks": Chunks, "torch": 1} {
		_, err := NewSampler(SamplerConfig{
			Name: name, Samples: samples, BatchSize: 1, World: 1, FirstChunk: first,
		})
		if err == nil {
			t.Errorf("sampler %s may begin with chunk %d", name, first)
		}
	}
}
