package systems

import (
	"math"
	"slices"

	"rankpool/scheduler"
)

// selective chooses what an epoch trains on: all samples as long as there is no history, then a sample with a probability in
// proportion to the percentile of its loss to the power beta.
//
// Source: Jiang et al., "Accelerating Deep Learning by Focusing on the Biggest Losers", arXiv 1910.00762, §3: P = CDF(loss)^beta, which
// iCACHE (HPCA 2023, §III-A) applies to the losses of the epochs before.
// Differs: the percentile is that among the latest losses of all samples, not among those of the last draws, and the sampler subset
// scales P so that an epoch has the length that it was told.
type selective struct {
	beta   float64
	warmUp int // epochs
}

// maxBeta bounds beta, far above what leaves any but the largest loss a weight.
const maxBeta = 1 << 20

var selectiveOptions = []Option{
	{
		Name: "beta", Default: 0.33, Least: 0, Most: 1000, About: "power of the percentile of a sample's loss in its probability to be drawn, at least 0",
		Source: "the default of --beta in the code that iCACHE's authors published; the paper gives none",
	},
	{
		Name: "warm_up_epochs", Default: 1, Least: 0, Most: 1e+06, Whole: true, About: "first epochs, which train on all samples since there is no history to choose by",
		Source: "chosen; the paper has none, its authors' README calls with 5",
	},
}

func newSelective(cfg PoolConfig) selective {
	return selective{beta: min(cfg.Value("beta"), maxBeta), warmUp: int(cfg.Value("warm_up_epochs"))}
}

// Resample implements Resampler.
func (s selective) Resample(_, epoch int, scores []float32) (string, []float32) {
	if epoch < s.warmUp {
		return "uniform", scores
	}
	weights := make([]float32, len(scores))
	for i, rank := range ranks(scores) {
		weights[i] = float32(power(float64(rank)/float64(len(scores)), s.beta))
	}
	return "subset", weights
}

// selectivePool is a policy's pool whose epochs selective chooses.
type selectivePool struct {
	*PolicyPool
	selective
}

// newSelectivePool returns what makes the selectivePool of a policy.
func newSelectivePool(policy func(PolicyConfig) scheduler.Policy) func(PoolConfig) Pool {
	return func(cfg PoolConfig) Pool {
		m := cfg.Memory
		p := policy(PolicyConfig{
			System: cfg.System, Samples: cfg.Samples, CapacityBytes: m.CapacityBytes(), Size: m.Size, Seed: cfg.Seed, Values: cfg.Values,
		})
		return selectivePool{NewPolicyPool(cfg, p), newSelective(cfg)}
	}
}

// ranks returns for each sample how many scores are at most its own, 1 … N; scores are not negative. Over N it is the percentile.
func ranks(scores []float32) []int32 {
	order := make([]uint64, len(scores))
	for i, s := range scores {
		order[i] = uint64(math.Float32bits(s+0))<<32 | uint64(i) // the bits of non-negative numbers have their order; -0 + 0 = 0
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

// power returns x^y for x in [0, 1] and y ≥ 0, with 24 bits of y's fraction. It multiplies and takes roots, which have the same bits on
// every machine; math.Pow has not.
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
