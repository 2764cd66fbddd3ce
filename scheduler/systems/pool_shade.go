package systems

import "rankpool/scheduler"

// shadePool is APP with the part of PADS that multinomial sampling leaves open: how often samples repeat, and when they do not.
//
// Samples that are in memory when an epoch is drawn get repetition times the draws that their scores give them. An epoch after a
// steep decline of the loss or while accuracy stagnates is drawn from the scores alone.
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, "Priority-based Adaptive Data Sampling".
// Differs: the paper has no formula. The factor is the replication_factor of the authors' implementation, which multiplies the cached
// samples of a drawn list and cuts the rest of it to the epoch's length; here their weights are raised so that the expected draws are
// the same. That implementation draws cached samples first in an epoch; here draws come in the order of their clocks. It draws
// nothing else once the factor fills an epoch; here max_share bounds it. Traces hold no validation accuracy: its place
// takes the share of samples with a loss below ln 2, which a model gives a probability above 1/2 and so predicts right for sure.
type shadePool struct {
	*PolicyPool
	repetition, maxShare, steep, gain float64
	curves                            []curve // by job
}

// curve is the course of a job's training. Every sample counts once, with its latest loss, so that repetition does not bend it.
type curve struct {
	latest     []float32 // by sample: its latest loss; negative: none yet
	loss       float64   // mean of the epoch before; 0 before the first
	accuracies []float64 // of the last epochs, the newest last, at most stagnationEpochs + 1
}

// stagnationEpochs is the number of epochs over which the gain of accuracy is averaged.
//
// Source: the authors' implementation of SHADE.
const stagnationEpochs = 3

// ln2 is the cross entropy of a sample whose label has the probability 1/2.
const ln2 = 0.693147180559945309417232121458

var shadeOptions = []Option{
	{
		Name: "repetition", Default: 3, Least: 1, Most: 1e+06, About: "draws of a sample in memory, in multiples of what its score gives it, at least 1; 1: PADS repeats nothing",
		Source: "default of the authors' implementation; the paper gives no number (its hit ratio of 0.725 with a cache of 0.2 in §6.6 needs about 3)",
	},
	{
		Name: "max_share", Default: 0.9, Least: 1e-06, Most: 1, About: "most of an epoch's draws that repetition gives to samples in memory, in (0, 1]",
		Source: "the paper gives no number; chosen so that every sample goes on to be drawn",
	},
	{
		Name: "steep", Default: 0.2, Least: 0, Most: 1e+09, About: "decline of the mean loss in an epoch, as a share of it, from which the next epoch repeats nothing",
		Source: "the paper gives no number (§4.2.1: a steep decline); chosen",
	},
	{
		Name: "gain", Default: 0, Least: -1, Most: 1, About: "gain of accuracy in an epoch, averaged over three, up to which the next epoch repeats nothing",
		Source: "the authors' implementation; the paper gives no number (§4.2.1: a stagnant accuracy curve)",
	},
}

func newShadePool(cfg PoolConfig) Pool {
	p := &shadePool{
		PolicyPool: NewPolicyPool(cfg, newAPP(PolicyConfig{})),
		repetition: cfg.Value("repetition"), maxShare: cfg.Value("max_share"), steep: cfg.Value("steep"), gain: cfg.Value("gain"),
		curves: make([]curve, cfg.Jobs),
	}
	for job := range p.curves {
		latest := make([]float32, cfg.Samples)
		for i := range latest {
			latest[i] = -1
		}
		p.curves[job].latest = latest
	}
	return p
}

// Trained implements Pool.
func (p *shadePool) Trained(b *Batch, r scheduler.Report) {
	p.PolicyPool.Trained(b, r)
	for i, id := range r.IDs {
		if l := r.Losses[i]; scheduler.Reported(l) && l >= 0 {
			p.curves[b.Job].latest[id] = l
		}
	}
}

// Resample implements Resampler.
func (p *shadePool) Resample(job, _ int, scores []float32) (string, []float32) {
	if p.curves[job].even(p.steep, p.gain) {
		return "pads", scores
	}
	return "pads", p.repeat(scores)
}

// repeat gives the samples in memory repetition times their share of the draws, at most maxShare, and the others what is left.
func (p *shadePool) repeat(scores []float32) []float32 {
	inside, all := 0.0, 0.0
	for id, s := range scores {
		all += float64(s)
		if p.memory.Has(scheduler.SampleID(id)) {
			inside += float64(s)
		}
	}
	share := min(float64(p.repetition*inside)/all, p.maxShare, 1)
	if !(share > inside/all) { // nothing to raise, or all scores are 0
		return scores
	}
	cut := float64(inside*(1-share)) / float64(share*(all-inside)) // below 1: raising the others could overflow
	weights := make([]float32, len(scores))
	for id, s := range scores {
		weights[id] = s
		if !p.memory.Has(scheduler.SampleID(id)) {
			weights[id] = float32(float64(s) * cut)
		}
	}
	return weights
}

// even ends an epoch, and reports whether the next one repeats nothing: before there are two epochs to compare, when the loss fell
// steeply in the last one, or when accuracy has not gained enough in the last ones.
func (c *curve) even(steep, gain float64) bool {
	sum, right, known := 0.0, 0, 0
	for _, l := range c.latest {
		if l < 0 {
			continue
		}
		known++
		sum += float64(l)
		if l < ln2 {
			right++
		}
	}
	if known == 0 {
		return true
	}
	before, loss := c.loss, sum/float64(known)
	c.loss = loss
	c.accuracies = append(c.accuracies, float64(right)/float64(known))
	if len(c.accuracies) > stagnationEpochs+1 {
		c.accuracies = c.accuracies[1:]
	}
	last := len(c.accuracies) - 1
	if last == 0 {
		return true
	}
	return before-loss >= float64(steep*before) || c.accuracies[last]-c.accuracies[0] <= float64(gain*float64(last))
}
