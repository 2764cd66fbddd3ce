package systems

import (
	"rankpool/scheduler/draw"
)

// selective chooses what an epoch trains on: in the warm-up all samples, then each sample with a
// probability proportional to the percentile of its loss to the power beta.
//
// Source: Jiang et al., "Accelerating Deep Learning by Focusing on the Biggest Losers", arXiv
// 1910.00762, §3: P = CDF(loss)^beta, which iCACHE (HPCA 2023, §III-A) applies to the losses of the
// previous epochs. It is the sampler selective with the scores that a pool has when an epoch
// begins; on ranks these are the scores before the cut.
type selective struct {
	beta   float64
	warmUp int // epochs
}

// maxBeta bounds beta. Far smaller values already leave a weight to the largest loss only.
const maxBeta = 1 << 20

var selectiveOptions = []Option{
	{
		Name: "beta", Default: 0.33, Least: 0, Most: 1000,
		About: "power of the percentile of a sample's loss in its probability to be drawn, at " +
			"least 0",
		Source: "the default of --beta in the code that iCACHE's authors published; the paper " +
			"gives none",
	},
	{
		Name: "warm_up_epochs", Default: 1, Least: 0, Most: 1e+06, Whole: true,
		About:  "first epochs, which train on all samples since there is no history to choose by",
		Source: "chosen; the paper has none, its authors' README calls with 5",
	},
	{
		Name: "fraction", Default: 0.7, Least: 1e-06, Most: 1,
		About:  "expected share of the samples in an epoch after the warm-up, in (0, 1]",
		Source: "§V-D: up to 31.4 % fewer I/Os",
	},
}

func newSelective(cfg PoolConfig) selective {
	return selective{
		beta:   min(cfg.Value("beta"), maxBeta),
		warmUp: int(cfg.Value("warm_up_epochs")),
	}
}

// Resample implements Resampler.
func (s selective) Resample(_, epoch int, scores []float32) (string, []float32) {
	if epoch < s.warmUp {
		return "uniform", scores
	}
	return "subset", draw.SelectiveWeights(scores, s.beta)
}

// selectivePool is a PolicyPool whose epochs are chosen by selective.
type selectivePool struct {
	*PolicyPool
	selective
}

func newSelectivePool(cfg PoolConfig) Pool {
	return selectivePool{NewPolicyPool(cfg, cfg.NewPolicy()), newSelective(cfg)}
}
