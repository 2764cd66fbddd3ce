package systems

import (
	"math"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

// shadePool is APP together with PADS, which draws for each process separately (shade_pads.go).
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, "Priority-based Adaptive Data Sampling".
// Differs: the paper gives no numbers. The factor is replication_factor in the authors'
// implementation, which draws nothing but samples in memory once the factor fills an epoch; here
// max_share bounds it. "On noticing a steep decline in the loss convergence curve or a stagnant
// accuracy curve" the important samples are shuffled. As in that implementation, a process then
// gets every P-th entry of its list instead of the most repeated ones, and samples in memory are
// still repeated; the implementation looks at accuracy alone. An accuracy is that of the epoch
// before the one under way, see accuracyCurve. Where training measures none, the share of samples
// with a loss below ln 2 replaces it: the model gives their label a probability above 1/2, and so
// predicts them right for sure.
type shadePool struct {
	*PolicyPool
	repetition, maxShare, steep, gain float64
	curves                            []curve // by job
	app                               *byImportance
}

// curve tracks a job's training. Every sample counts once, with its latest loss, so that repetition
// does not distort the curve.
type curve struct {
	latest []float32 // by sample: its latest loss; NaN: none yet
	loss   float64   // mean of the previous epoch; 0 before the first
	accuracyCurve
	even bool // the next epoch prefers no draws
}

// stagnationEpochs is the number of epochs over which the gain of accuracy is averaged.
//
// Source: the authors' implementation of SHADE.
const stagnationEpochs = 3

// ln2 is the cross entropy of a sample whose label has the probability 1/2.
const ln2 = 0.693147180559945309417232121458

var shadeMaxShare = Option{
	Name: "max_share", Default: 0.9, Least: 1e-06, Most: 1,
	About:  "most of an epoch's draws that repetition gives to samples in memory, in (0, 1]",
	Source: "the paper gives no number; chosen so that every sample continues to be drawn",
}

var shadeOptions = []Option{
	{
		Name: "repetition", Default: 3, Least: 1, Most: 1e+06,
		About: "how often a draw of a sample in memory is repeated in its process's part of an " +
			"epoch, at least 1; 1: once",
		Source: "default of the authors' implementation; the paper gives no number (its hit " +
			"ratio of 0.725 with a cache of 0.2 in §6.6 needs about 3)",
	},
	shadeMaxShare,
	{
		Name: "steep", Default: 0.2, Least: 0, Most: 1e+09,
		About: "decline of the mean loss in an epoch, as a share of it, from which the next " +
			"epoch does not prefer the most repeated draws",
		Source: "the paper gives no number (§4.2.1: a steep decline); chosen",
	},
	{
		Name: "gain", Default: 0, Least: -1, Most: 1,
		About: "gain of accuracy in an epoch, averaged over three, up to which the next epoch " +
			"does not prefer the most repeated draws",
		Source: "the authors' implementation; the paper gives no number (§4.2.1: a stagnant " +
			"accuracy curve)",
	},
}

func newShadePool(cfg PoolConfig) Pool {
	app := newByImportance(true, true)
	p := &shadePool{
		PolicyPool: NewPolicyPool(cfg, app), app: app,
		repetition: cfg.Value("repetition"), maxShare: cfg.Value("max_share"), steep: cfg.Value("steep"),
		gain:   cfg.Value("gain"),
		curves: make([]curve, cfg.Jobs),
	}
	for job := range p.curves {
		latest := make([]float32, cfg.Samples)
		for i := range latest {
			latest[i] = float32(math.NaN())
		}
		p.curves[job] = curve{latest: latest, accuracyCurve: newAccuracyCurve()}
	}
	return p
}

// sampler returns the sampler that draws a process's list.
func (p *shadePool) sampler(job, process int) draw.Sampler {
	return mustSampler(p.cfg.System, draw.SamplerConfig{
		Name: "pads", Samples: p.cfg.Samples, Seed: padsSeed(p.cfg.Seed+int64(job), process),
		BatchSize: 1, World: 1,
	})
}

// Trained implements Pool.
func (p *shadePool) Trained(b *Batch, r protocol.Report) {
	p.PolicyPool.Trained(b, r)
	for i, id := range r.IDs {
		if l := r.Losses[i]; protocol.Reported(l) {
			p.curves[b.Job].latest[id] = l
		}
	}
}

// Measure implements Measurer.
func (p *shadePool) Measure(job int, accuracy float32) { p.curves[job].told = accuracy }

// Cut implements Drawer.
func (p *shadePool) Cut(job int) {
	c := &p.curves[job]
	c.even = c.end(p.steep, p.gain)
}

// Draw implements Drawer. Place j of an epoch belongs to process j mod P.
func (p *shadePool) Draw(job, epoch int, scores []float32) []draw.SampleID {
	processes := p.cfg.trainers()
	n := (len(scores) + processes - 1) / processes
	ids := make([]draw.SampleID, n*processes)
	for process := range processes {
		part := p.sampler(job, process).Draw(epoch, scores).IDs
		if p.curves[job].even {
			part = padsStride(part, process, processes, n)
		} else {
			part = padsCut(part, scores, n)
		}
		part = padsRepeat(part, p.memory.Has, p.repetition, p.maxShare)
		order := newRandom(padsSeed(p.cfg.Seed+int64(job), process) ^ int64(epoch)<<16)
		order.shuffle(part)
		for k, id := range part {
			ids[k*processes+process] = id
		}
	}
	return ids
}

// end ends an epoch, and reports whether the next one prefers no draws: until there are two epochs
// to compare, if the loss fell steeply in the last one, or if accuracy gained too little in the
// last ones.
func (c *curve) end(steep, gain float64) bool {
	sum, right, known := 0.0, 0, 0
	for _, l := range c.latest {
		if !(l >= 0) {
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
	c.extend(float64(right) / float64(known))
	c.accuracies = c.accuracies[max(0, len(c.accuracies)-stagnationEpochs-1):]
	last := len(c.accuracies) - 1
	if last == 0 {
		return true
	}
	return before-loss >= float64(steep*before) ||
		c.accuracies[last]-c.accuracies[0] <= float64(gain*float64(last))
}
