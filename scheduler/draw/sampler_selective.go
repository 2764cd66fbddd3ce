package draw

import (
	"math"
	"slices"
)

// selectiveSampler draws every sample once in the first epochs, as long as there is no history, and
// then a part of the samples, each with a probability in proportion to the percentile of its score
// to the power beta: it draws what subset draws by these weights.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-A (I/O-oriented importance sampling), which takes
// the rule from Jiang et al., "Accelerating Deep Learning by Focusing on the Biggest Losers", arXiv
// 1910.00762, §3: P = CDF(loss)^beta. Differs: the percentile is among the latest scores of all
// samples, not among those of the last draws, and P is scaled so that the epoch has its expected
// length; see subsetSampler.
type selectiveSampler struct {
	uniform uniformSampler
	subset  subsetSampler
	beta    float64
	warmUp  int // epochs
}

// selectiveBeta is the default of Beta: that of --beta in the code that iCACHE's authors published;
// the paper gives none.
const selectiveBeta = 0.33

func newSelectiveSampler(cfg SamplerConfig) Sampler {
	cfg.Floor = NoFloor // the percentile of the least score is not 0
	s := selectiveSampler{
		newUniformSampler(cfg).(uniformSampler),
		newSubsetSampler(cfg).(subsetSampler), cfg.Beta, max(cfg.WarmUp, 0),
	}
	if s.beta == 0 {
		s.beta = selectiveBeta
	}
	if cfg.WarmUp == 0 {
		s.warmUp = 1
	}
	return s
}

func (s selectiveSampler) Weighted() bool { return true }

func (s selectiveSampler) Draw(epoch int, scores []float32) *Draws {
	r := newRates(scores, s.subset.samples, 1, NoFloor)
	if epoch+1 < s.warmUp {
		return s.uniform.Draw(epoch, nil)
	}
	d := s.subset.Draw(epoch, SelectiveWeights(scores, s.beta))
	f := selectiveForecast{
		subsetForecast: d.forecast.(*subsetForecast), beta: s.beta,
		sorted: slices.Clone(scores),
	}
	slices.Sort(f.sorted)
	if epoch < s.warmUp {
		d.IDs, f.even = s.uniform.Draw(epoch, nil).IDs, true
	}
	d.Sum, d.forecast = r.sum, f
	return d
}

// selectiveForecast knows a score by its percentile among those that the epoch was drawn with. In
// the last epoch of the warm-up, which is even, it foresees the first one after it.
type selectiveForecast struct {
	*subsetForecast
	beta   float64
	sorted []float32
	even   bool
}

func (f selectiveForecast) next(id SampleID, score float32) float64 {
	rank, _ := slices.BinarySearchFunc(f.sorted, score, func(s, score float32) int {
		if s <= score {
			return -1
		}
		return 1
	})
	return f.subsetForecast.next(id, selectiveWeight(rank, len(f.sorted), f.beta))
}

func (f selectiveForecast) weight(id SampleID) float32 {
	if f.even {
		return 1
	}
	return f.subsetForecast.weight(id)
}

func (f selectiveForecast) weighted() bool { return !f.even }

// SelectiveWeights returns the percentile of each score to the power beta, which is at least 0.
func SelectiveWeights(scores []float32, beta float64) []float32 {
	weights := make([]float32, len(scores))
	for i, rank := range Ranks(scores) {
		weights[i] = selectiveWeight(int(rank), len(scores), beta)
	}
	return weights
}

func selectiveWeight(rank, samples int, beta float64) float32 {
	return float32(power(float64(rank)/float64(samples), beta))
}

// Ranks returns for each sample how many scores are at most its own, 1 … N; divided by N, that is
// the percentile.
func Ranks(scores []float32) []int32 {
	order := make([]uint64, len(scores))
	for i, s := range scores {
		order[i] = uint64(Sortable(s))<<32 | uint64(i)
	}
	slices.Sort(order)
	result := make([]int32, len(scores))
	rank := int32(len(order))
	for k := len(order) - 1; k >= 0; k-- {
		if k+1 < len(order) && order[k]>>32 != order[k+1]>>32 {
			rank = int32(k + 1)
		}
		result[uint32(order[k])] = rank
	}
	return result
}

// power returns x^y for x in [0, 1] and y ≥ 0, with 24 bits of y's fraction. It multiplies and
// takes roots, which give the same bits on every machine; math.Pow does not.
func power(x, y float64) float64 {
	whole, fraction := math.Modf(y)
	result := 1.0
	for base := x; whole >= 1; base *= base {
		if math.Mod(whole, 2) == 1 {
			result *= base
		}
		whole = math.Floor(whole / 2)
	}
	for root := math.Sqrt(x); fraction > 0x1p-24; root = math.Sqrt(root) {
		fraction *= 2
		if fraction >= 1 {
			result *= root
			fraction--
		}
	}
	return result
}
