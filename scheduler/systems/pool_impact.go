package systems

import (
	"slices"

	"rankpool/scheduler/draw"
)

// impact is IMPACT's memory. In the warm-up, training uses all samples and memory keeps what is
// read first. Afterwards the samples whose importance ranks vary most, the set S, have their own
// buffer and are evaluated before every epoch. iCACHE has the rest of the memory.
//
// Source: Chen et al., "IMPACT", IEEE Transactions on Computers 2025, §III. Differs: S is evaluated
// before the cut of every epoch after the warm-up, for the plan of the next. So it is not evaluated
// for the first of them, but the warm-up has trained on all of S. The importance sampling that
// IMPACT adopts from Mindermann et al. (ICML 2022) needs a second model; iCACHE's is used instead.
// What the warm-up kept and S does not need is offered to the H-cache. With several jobs, which the
// paper does not cover, the first job determines S and the end of the warm-up.
type impact struct {
	*icache
	cfg      PoolConfig
	maxWarm  int
	variance *rankVariance
	warm     bool // in the warm-up
	ending   bool // the warm-up ends with the epoch under way
	unstable []draw.SampleID
	buffer   int64 // most bytes of S
}

// stableOverlap ends the warm-up when two successive sets have more than this share in common.
//
// Source: IMPACT, §III-B: "over 80 %".
const stableOverlap = 0.8

func newIMPACT(cfg PoolConfig) *impact {
	p := &impact{
		cfg: cfg, maxWarm: int(cfg.Value("max_warm_up_epochs")),
		variance: newRankVariance(cfg.Samples), warm: true,
		buffer: cfg.Memory.Part(min(cfg.Value("unstable_share"), 1), cfg.Memory.CapacityBytes()),
	}
	p.icache = newICache(cfg, cfg.Memory.CapacityBytes()-p.buffer,
		selective{beta: min(cfg.Value("beta"), maxBeta)})
	p.static = make([]bool, cfg.Samples)
	return p
}

// Evaluate implements Evaluator: after the warm-up it returns S.
func (p *impact) Evaluate(int) []draw.SampleID {
	if p.warm {
		return nil
	}
	return slices.Clone(p.unstable)
}

// TakeCut implements Evaluator. In the warm-up it adds the first job's epoch under way to the
// variance.
func (p *impact) TakeCut(job, epoch int) {
	if !p.warm || p.ending || job != 0 {
		return
	}
	p.variance.add(p.cfg.Scores[0].Cut)
	last := p.unstable
	if p.variance.epochs > 1 {
		p.unstable = p.variance.top(p.buffer, p.cfg.Memory.Size)
	}
	p.ending = epoch >= p.maxWarm || stable(last, p.unstable)
}

// stable reports whether two successive sets, sorted by id, have more than stableOverlap in common.
func stable(last, now []draw.SampleID) bool {
	common := 0
	for _, id := range now {
		if _, in := slices.BinarySearch(last, id); in {
			common++
		}
	}
	return float64(common) > stableOverlap*float64(len(now))
}

// begin ends the warm-up. Each sample of S that is not in memory is read by itself.
func (p *impact) begin() {
	for _, id := range p.unstable {
		p.static[id] = true
	}
	for job := range p.cfg.Jobs {
		p.jobs.pull(job)
	}
	p.pull()
	for i := range p.static {
		if id := draw.SampleID(i); !p.static[i] && p.memory.Has(id) {
			p.adopt(id)
		}
	}
	for i, id := range p.unstable {
		if !p.memory.Has(id) {
			p.memory.Load([]draw.SampleID{id}, int32(i%p.cfg.Ranks))
		}
	}
}

// Resample implements Resampler.
func (p *impact) Resample(job, epoch int, scores []float32) (string, []float32) {
	if p.warm && !p.ending {
		return "uniform", scores
	}
	return p.icache.Resample(job, epoch, scores)
}

// Begin implements Pool.
func (p *impact) Begin(job, epoch int, ids []draw.SampleID) {
	if p.ending {
		p.warm, p.ending = false, false
		p.begin()
	}
	if !p.warm {
		p.icache.Begin(job, epoch, ids)
	}
}

// Batch implements Pool.
func (p *impact) Batch(b *Batch, answers []Answer) {
	if p.warm {
		for i, id := range b.IDs {
			answers[i] = Answer{Served: id, Read: !p.memory.Has(id)}
			if answers[i].Read && p.memory.Fits(id) {
				p.memory.Keep(id, b.Rank[i])
			}
		}
		return
	}
	p.icache.Batch(b, answers)
}

var impactSystem = System{
	Name: "impact", Scorer: "loss", Sampler: "selective", Policy: "impact",
	Live: liveServed, Evaluates: true, Packs: true,
	NewPool: func(cfg PoolConfig) Pool { return newIMPACT(cfg) },
	About: "iCACHE beside a buffer of the samples whose importance ranks vary most, which are " +
		"evaluated before every epoch",
	Source: "Chen et al., IMPACT: Importance-Informed Prefetching and Caching for I/O-Bound DNN " +
		"Training, IEEE Transactions on " +
		"Computers, 2025",
	Options: slices.Concat([]Option{
		{
			Name: "unstable_share", Default: 0.25, Least: 0, Most: 0.99,
			About:  "share of the memory for the samples whose ranks vary most, in [0, 1)",
			Source: "§V-I",
		},
		{
			Name: "max_warm_up_epochs", Default: 7, Least: 2, Most: 1e+06, Whole: true,
			About: "most epochs of the warm-up, at least 2",
			Source: "chosen: the mean over the paper's models is 6.4 (§III-B), which leaves the " +
				"limit to the user",
		},
		{
			Name: "fraction", Default: 0.5, Least: 1e-06, Most: 1,
			About: "expected share of the samples in an epoch after the warm-up, in (0, 1]",
			Source: "Fig. 7: 3 samples of 6; §V-D: fewer draws alone make a training that waits for " +
				"storage 1.9 times as fast",
		},
	}, slices.DeleteFunc(slices.Clone(icacheOptions),
		func(o Option) bool { return o.Name == "warm_up_epochs" || o.Name == "fraction" })),
}
