package draw

import "slices"

// onceSampler draws every sample once, important ones early: in the order of E/λ, the first
// arrivals of race clocks whose rates are the scores. Samples with the least score
// come last if that is 0 or below.
//
// Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", Information
// Processing Letters 97(5), 2006, §2, algorithm A: order by u^(1/w), which is the order of
// -ln(u)/w. Differs: an epoch is a whole number of global batches, filled from its beginning, where
// DistributedSampler pads to a multiple of the number of trainers.
type onceSampler struct{ race }

func newOnceSampler(cfg SamplerConfig) Sampler { return onceSampler{cfg.race()} }

func (s onceSampler) Weighted() bool { return true }

func (s onceSampler) Draw(epoch int, scores []float32) *Draws {
	r := newRates(scores, s.samples, float64(s.samples), NoFloor)
	clock := s.clocks.epoch(epoch)
	words := make([]uint64, s.samples)
	for i, score := range r.scores {
		words[i] = uint64(firstKey(clock.bits(SampleID(i), 0), r.of(score)))<<32 | uint64(i)
	}
	sorted := sortByTime(words, make([]uint64, s.samples))
	f := &onceForecast{sampler: s, epoch: epoch, rates: r, quantiles: quantilesOf(sorted)}
	return &Draws{Epoch: epoch, IDs: firstIDs(sorted, s.draws), Sum: r.sum, forecast: f}
}

// firstKey is the time key of a sample's first arrival.
func firstKey(h uint64, rate float64) uint32 {
	if rate == 0 {
		return neverKey(h)
	}
	return timeKey(exponential(h) / rate)
}

// onceQuantiles is how finely the distribution of arrival times is kept: to 1/1024 of an epoch.
const onceQuantiles = 1024

// quantilesOf returns the keys at places 0, N/1024, 2N/1024, … of sorted words; the ends are the
// ends of the range.
func quantilesOf(sorted []uint64) *[onceQuantiles + 1]uint32 {
	var q [onceQuantiles + 1]uint32
	for i := 1; i < onceQuantiles; i++ {
		q[i] = uint32(sorted[len(sorted)*i/onceQuantiles] >> 32)
	}
	q[onceQuantiles] = 1<<32 - 1
	return &q
}

// onceForecast assumes that the arrival times of later epochs are distributed like those of this
// one.
type onceForecast struct {
	unweighted
	sampler   onceSampler
	epoch     int
	rates     rates
	quantiles *[onceQuantiles + 1]uint32
}

func (f *onceForecast) next(id SampleID, score float32) float64 {
	rate := f.rates.of(f.rates.lift.of(score))
	scale := float64(f.sampler.samples) / float64(f.sampler.draws)
	return firstEpoch(f.epoch, 1/rate, func(epoch int) float64 {
		h := f.sampler.clocks.epoch(epoch).bits(id, 0)
		return float64(f.quantile(firstKey(h, rate)) * scale)
	})
}

// quantile returns the share of the samples with smaller keys, in [0, 1).
func (f *onceForecast) quantile(key uint32) float64 {
	q := f.quantiles[:]
	i, _ := slices.BinarySearch(q[1:onceQuantiles], key)
	lo, hi := float64(q[i]), float64(q[i+1])
	within := 0.5
	if hi > lo {
		within = min((float64(key)-lo)/(hi-lo), 1-0x1p-40)
	}
	return (float64(i) + within) / onceQuantiles
}
