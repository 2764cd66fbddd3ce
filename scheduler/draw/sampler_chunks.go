package draw

// Chunks is how many chunks the sampler chunks has; a smaller data set has fewer.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.1: "e.g. 10 %".
const Chunks = 10

// chunkOf returns a sample's chunk. Each chunk has one of the first ten samples, one of the next
// ten, and so on, each time from another one on: so a chunk is like the whole, whether classes
// follow each other or alternate. Chunks are equal, up to one sample.
//
// Differs: Quiver's chunks (§5.1) are a tenth of each tenth of the data set. Where classes follow
// each other, as in a folder, that is a few classes.
func chunkOf(id SampleID, chunks int) int {
	n := uint64(chunks)
	return int((uint64(id) + mix(uint64(id)/n)%n) % n)
}

// chunksSampler draws every sample once, chunk by chunk: the chunks in turn, from a first one in
// epoch 0, and then beginning with the one that the epoch before ended with; inside a chunk in the
// order of race clocks. Trainings with different seeds go through the same chunks in the same
// order, and so can share what is in memory. Samples are not substituted.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §4.7 and §5.1, whose substitutable hits amount
// to this order. Differs: as with uniform, an epoch is a whole number of global batches, filled
// from its beginning.
type chunksSampler struct {
	race
	chunks, first int
}

func newChunksSampler(cfg SamplerConfig) Sampler {
	return &chunksSampler{cfg.race(), min(Chunks, cfg.Samples), cfg.FirstChunk}
}

func (s *chunksSampler) Weighted() bool { return false }

// turn returns the place of a sample's chunk among those of an epoch.
func (s *chunksSampler) turn(epoch int, id SampleID) int {
	return (chunkOf(id, s.chunks) + epoch%s.chunks + s.chunks - s.first) % s.chunks
}

// NextChunk returns the chunk that the sampler chunks draws after the one that it draws in the
// given batch of an epoch with the given number of batches. An epoch begins with the last chunk of
// the previous epoch, so at the end of an epoch that chunk is also the next.
func NextChunk(cfg SamplerConfig, epoch, batch, batches int) int {
	chunks := min(Chunks, cfg.Samples)
	turn := min(batch*chunks/max(batches, 1)+1, chunks-1)
	return (turn + (chunks-1)*(epoch%chunks) + cfg.FirstChunk) % chunks
}

// turnBits is how many bits of a time key hold the chunk's turn; the others are enough to order a
// chunk's samples.
const turnBits = 4

func (s *chunksSampler) Draw(epoch int, _ []float32) *Draws {
	clock := s.clocks.epoch(epoch)
	words := newTimeSorter(s.samples, evenKeys)
	for i := range s.samples {
		id := SampleID(i)
		words.add(uint64(s.turn(epoch, id))<<(64-turnBits) | ^clock.bits(id,
			0)>>(32+turnBits)<<32 | uint64(i))
	}
	return &Draws{
		Epoch: epoch, IDs: words.ids(s.draws),
		forecast: chunksForecast{sampler: s, epoch: epoch},
	}
}

// chunksForecast has the right order of samples.
type chunksForecast struct {
	unweighted
	sampler *chunksSampler
	epoch   int
}

func (f chunksForecast) next(id SampleID, _ float32) float64 {
	s := f.sampler
	scale := float64(s.samples) / float64(s.draws) / float64(s.chunks)
	return firstEpoch(f.epoch, 1, func(epoch int) float64 {
		return float64((float64(s.turn(epoch, id)) + s.clocks.epoch(epoch).quantile(id)) * scale)
	})
}
