package draw

// uniformSampler draws every sample once, in the order of race clocks that all run at the same
// rate: a uniform permutation.
//
// Differs: an epoch is a whole number of global batches, filled from its beginning, where
// DistributedSampler pads to a multiple of the number of trainers; so an epoch depends on the size
// of the global batch, and not on how many trainers share it.
type uniformSampler struct{ race }

func newUniformSampler(cfg SamplerConfig) Sampler { return uniformSampler{cfg.race()} }

func (s uniformSampler) Weighted() bool { return false }

func (s uniformSampler) Draw(epoch int, _ []float32) *Draws {
	clock := s.clocks.epoch(epoch)
	words := newTimeSorter(s.samples, evenKeys)
	for i := range s.samples {
		words.add(^clock.bits(SampleID(i), 0)>>32<<32 | uint64(i))
	}
	return &Draws{
		Epoch: epoch, IDs: words.ids(s.draws),
		forecast: uniformForecast{sampler: s, epoch: epoch},
	}
}

type uniformForecast struct {
	unweighted
	sampler uniformSampler
	epoch   int
}

func (f uniformForecast) next(id SampleID, _ float32) float64 {
	scale := float64(f.sampler.samples) / float64(f.sampler.draws)
	return firstEpoch(f.epoch, 1, func(epoch int) float64 {
		return float64(f.sampler.clocks.epoch(epoch).quantile(id) * scale)
	})
}

// quantile returns the share of all samples that come before this one when all clocks run at the
// same rate, in (0, 1).
func (s stream) quantile(id SampleID) float64 { return uniform(^s.bits(id, 0)) }
