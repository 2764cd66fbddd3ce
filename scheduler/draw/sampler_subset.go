package draw

import "math"

// subsetSampler draws a part of the samples, each at most once: a sample is in when u' < p, p =
// min(1, c·score), and is placed by its own clock, all at the same rate.
//
// c is such that the expected size is Fraction of the samples: what is cut off above p = 1 goes to
// the others, in proportion to their scores. No score is below the floor, so a sample with a loss
// of 0 comes back. Fraction is 0.7 by default.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III (I/O-oriented importance sampling: samples are
// chosen by their history of importance before the epoch, and only these are fetched). Differs: the
// papers leave the sampling rule to others; this one keeps the epoch's expected length fixed. An
// epoch is a whole number of global batches, at least one, filled from its beginning, where
// DistributedSampler pads to a multiple of the number of trainers. If no sample is in, all are.
type subsetSampler struct {
	samples  int
	batch    int
	dropLast bool
	fraction float64
	floor    float64
	clocks   source
	members  source
}

// subsetFraction is the default of Fraction. 1/0.7 = 1.4 is near the reduction of computing, 1.3
// times, that iCACHE (§II-B, Figure 2a) measures for a history-based importance sampling.
const subsetFraction = 0.7

func newSubsetSampler(cfg SamplerConfig) Sampler {
	s := subsetSampler{
		samples:  cfg.Samples,
		batch:    cfg.globalBatch(),
		dropLast: cfg.DropLast,
		fraction: cfg.Fraction,
		floor:    cfg.floor(),
		clocks:   newSource(cfg.Seed, forClock),
		members:  newSource(cfg.Seed, forMembership),
	}
	if s.fraction == 0 {
		s.fraction = subsetFraction
	}
	return s
}

func (s subsetSampler) Weighted() bool { return true }

func (s subsetSampler) Draw(epoch int, scores []float32) *Draws {
	size := float64(s.fraction * float64(s.samples))
	r := newRates(scores, s.samples, size, s.floor)
	expected := r.clip(size)
	clock, member := s.clocks.epoch(epoch), s.members.epoch(epoch)
	words := newTimeSorter(int(expected), evenKeys)
	for i, score := range r.scores {
		if uniform(member.bits(SampleID(i), 0)) < r.of(score) {
			words.add(^clock.bits(SampleID(i), 0)>>32<<32 | uint64(i))
		}
	}
	if words.n == 0 {
		for i := range s.samples {
			words.add(^clock.bits(SampleID(i), 0)>>32<<32 | uint64(i))
		}
	}
	f := &subsetForecast{
		sampler:  s,
		epoch:    epoch,
		rates:    r,
		expected: expected,
		drawn:    words.n,
		draws:    wholeBatches(words.n, s.batch, s.dropLast),
	}
	return &Draws{Epoch: epoch, IDs: words.ids(f.draws), Sum: r.sum, forecast: f}
}

// clipRounds bounds the passes over the scores; losses recorded from training need fewer than ten.
const clipRounds = 64

// clip raises the rates, whose sum is total, until the sum of min(1, rate) is total, and returns
// that sum; it is less if fewer than total samples have a score above 0.
func (r *rates) clip(total float64) (expected float64) {
	if r.equal > 0 {
		return total
	}
	clipped := 0
	for range clipRounds {
		full, rest := clippedAt(r.scores, float32(1/r.perScore))
		expected = float64(full) + float64(r.perScore*rest)
		if full <= clipped || rest == 0 {
			break
		}
		clipped = full
		r.perScore = max(r.perScore, (total-float64(full))/rest)
	}
	return expected
}

// clippedAt returns how many scores are at least limit, and the sum of the others. It has no branch
// that depends on a score: the bits of non-negative numbers have the order of the numbers.
func clippedAt(scores []float32, limit float32) (full int, rest float64) {
	bound := int64(math.Float32bits(limit))
	for _, score := range scores {
		b := math.Float32bits(score)
		below := uint32((int64(b&^(1<<31)) - bound) >> 63) // all ones or all zeros
		full += int(1 &^ below)
		rest += float64(math.Float32frombits(b & below))
	}
	return full, rest
}

// subsetForecast assumes that later epochs are as long as this one.
type subsetForecast struct {
	sampler  subsetSampler
	epoch    int
	rates    rates
	expected float64 // draws
	drawn    int     // before the last global batch was filled or dropped
	draws    int
}

func (f *subsetForecast) next(id SampleID, score float32) float64 {
	rate := f.rates.of(f.rates.lift.of(score))
	if rate == 0 {
		return never
	}
	scale := float64(f.drawn) / float64(f.draws)
	return firstEpoch(f.epoch, 1/rate, func(epoch int) float64 {
		if uniform(f.sampler.members.epoch(epoch).bits(id, 0)) >= rate {
			return 1
		}
		return float64(f.sampler.clocks.epoch(epoch).quantile(id) * scale)
	})
}

func (f *subsetForecast) weight(id SampleID) float32 {
	return inverseShare(min(f.rates.of(f.rates.scores[id]), 1), f.expected, f.sampler.samples)
}

func (f *subsetForecast) weighted() bool { return true }
