package draw

import "math"

// weightedSampler draws L times with replacement, each time a sample in proportion to its score. A
// sample's arrivals are those of a Poisson process of rate λ = L·score/Σscore, at times E1/λ,
// (E1+E2)/λ, …; the first L arrivals of all samples are the epoch.
//
// No score is below the floor, so a sample with a loss of 0 comes back, and no weight exceeds 1 /
// floor.
//
// It has two names: pads is SHADE's priority-based adaptive data sampling, with the scorer logrank;
// weighted goes with any scorer.
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1 (multinomial sampling by importance); Kingman,
// "Poisson Processes", 1993, §5.1 (colouring), by which the superposition of the processes is L
// independent draws. Differs: an epoch has N draws rounded to a whole number of global batches, so
// that it does not depend on how many trainers share them, where DistributedSampler pads to a
// multiple of their number.
type weightedSampler struct {
	race
	floor float64
}

func newWeightedSampler(cfg SamplerConfig) Sampler {
	return weightedSampler{cfg.race(), cfg.floor()}
}

func (s weightedSampler) Weighted() bool { return true }

func (s weightedSampler) Draw(epoch int, scores []float32) *Draws {
	draws := float64(s.draws)
	r := newRates(scores, s.samples, draws, s.floor)
	clock := s.clocks.epoch(epoch)

	// Arrivals before the horizon are Poisson distributed with mean L·horizon, L + 5√L + 16 at first:
	// one time in millions, there are fewer than L. The draws do not depend on the horizon.
	horizon := 1 + 5/math.Sqrt(draws) + 16/draws
	words := arrivals(clock, r, draws, horizon)
	for words.n < s.draws {
		horizon *= 2
		words = arrivals(clock, r, draws, horizon)
	}
	return &Draws{
		Sum:      r.sum,
		Epoch:    epoch,
		IDs:      words.ids(s.draws),
		forecast: weightedForecast{sampler: s, epoch: epoch, rates: r},
	}
}

// arrivals returns a word of (time key, id) for every arrival before the horizon; an epoch has
// about draws of them.
func arrivals(clock stream, r rates, draws, horizon float64) *timeSorter {
	end := timeKey(horizon)
	words := newTimeSorter(int(draws*horizon),
		func(key uint32) float64 { return keyTime(key) / horizon })
	for i, score := range r.scores {
		rate := r.of(score)
		if rate == 0 {
			continue
		}
		tail := float64(float64(rate*horizon) * (1 + 1e-9))
		clockTime := 0.0
		for k := uint32(0); ; k++ {
			h := clock.bits(SampleID(i), k)
			// as -ln u > 1 - u, the arrival is beyond the horizon for sure
			if 1-uniform(h) > tail-clockTime {
				break
			}
			clockTime += exponential(h)
			key := timeKey(clockTime / rate)
			if key >= end {
				break
			}
			words.add(uint64(key)<<32 | uint64(i))
		}
	}
	return words
}

// weightedForecast assumes that an epoch ends at time 1; its L-th arrival is at 1 ± 1/√L.
type weightedForecast struct {
	sampler weightedSampler
	epoch   int
	rates   rates
}

func (f weightedForecast) next(id SampleID, score float32) float64 {
	rate := f.rates.of(f.rates.lift.of(score))
	if rate == 0 {
		return never
	}
	return firstEpoch(f.epoch, 1/rate, func(epoch int) float64 {
		h := f.sampler.clocks.epoch(epoch).bits(id, 0)
		if 1-uniform(h) > rate { // as -ln u > 1 - u
			return 1
		}
		return exponential(h) / rate
	})
}

func (f weightedForecast) weight(id SampleID) float32 {
	return inverseShare(f.rates.of(f.rates.scores[id]), float64(f.sampler.draws), f.sampler.samples)
}

func (f weightedForecast) weighted() bool { return true }

// inverseShare is 1/(N q) for a sample with the given part of total, q = part/total; 0 when part is
// 0.
func inverseShare(part, total float64, samples int) float32 {
	if part == 0 {
		return 0
	}
	return float32(total / part / float64(samples))
}
