package systems

import (
	"math/bits"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// icache is iCACHE's memory: an H-cache of the most important samples, and an L-cache of others
// that stand in for one another. A draw of an H-sample is served exactly, a draw of an L-sample by
// what the L-cache has.
//
// The H-list of a job is pulled when its epoch begins and holds for the epoch: its H-samples are
// the most important of the epoch's draws. Until a job's first losses are known, all samples are H.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III and Algorithm 1. Differs: a sample is served from
// wherever it is in memory, so that none is there twice; Algorithm 1 looks for an L-sample in the
// L-cache only. L-samples that a new H-list makes H move to the H-cache if it admits them, and are
// dropped otherwise.
type icache struct {
	selective
	memory        *Memory
	jobs          *icacheJobs
	capacityBytes int64 // of both caches
	leastLow      int64 // least bytes of the L-cache: one package

	heap *importanceHeap
	high *stager.Cache
	low  *lcache
	list []float32   // importance of all samples, of the lists pulled last
	seen []frequency // by job, in the epoch under way
	past []frequency // by job, in its last epoch with an H-list

	// by sample: it is in memory for good, outside both caches; nil if none is
	static []bool
}

// frequency counts draws of H-samples and of L-samples.
type frequency struct{ high, low uint64 }

// highShareNum / highShareDen is the H-cache's share of the memory until frequencies are known.
//
// Source: iCACHE, §V-A: "the initial ratio … is 9:1".
const highShareNum, highShareDen = 9, 10

// packageSamples is the default number of samples of mean size in a package. So if all samples have
// one size, what is served does not depend on it.
const packageSamples = 10

// newICache returns empty caches of capacityBytes of cfg's memory.
func newICache(cfg PoolConfig, capacityBytes int64, choice selective) *icache {
	c := &icache{
		selective: choice, memory: cfg.Memory, capacityBytes: capacityBytes,
		jobs: newICacheJobs(cfg),
		seen: make([]frequency, cfg.Jobs), past: make([]frequency, cfg.Jobs),
	}
	largest, total := int64(1), int64(0)
	for i := range cfg.Samples {
		size := cfg.Memory.Size(draw.SampleID(i))
		largest, total = max(largest, size), total+size
	}
	least := int64(cfg.Value("package_bytes"))
	if least == 0 {
		least = packageSamples * total / int64(cfg.Samples)
	}
	unit := cfg.Memory.unit // whole samples, see Memory.Part
	initial := capacityBytes - capacityBytes/unit*highShareNum/highShareDen*unit
	packageBytes := max(1, min(least, initial))
	c.leastLow = min((packageBytes+largest-1)/unit*unit, capacityBytes)
	c.heap = newImportanceHeap(PolicyConfig{System: cfg.System, Values: cfg.Values})
	lowBytes := max(initial, c.leastLow)
	c.high = stager.NewCache(c.heap, capacityBytes-lowBytes, cfg.Memory.Size)
	c.low = newLCache(cfg, newPackager(cfg, packageBytes, c.jobs.isLow), lowBytes)
	c.list = c.jobs.importance()
	return c
}

// Begin implements Pool.
func (c *icache) Begin(job, _ int, ids []draw.SampleID) {
	if c.jobs.begin(job, ids) {
		c.past[job] = c.seen[job]
	}
	c.seen[job] = frequency{}
	c.pull()
	c.resize()
	c.low.packages.repack()
	c.low.begin(job)
}

// pull applies new H-lists.
func (c *icache) pull() {
	c.list = c.jobs.importance()
	c.heap.pull(c.list)
	c.low.filter(c.jobs.isLow, c.adopt)
}

// adopt offers the H-cache a sample that is in memory and in neither cache, and drops the sample if
// it is not admitted.
func (c *icache) adopt(id draw.SampleID) {
	if c.high.Draw(stager.Use{ID: id, Score: c.list[id]}, c.memory.Drop) != stager.Admitted {
		c.memory.Drop(id)
	}
}

// resize gives each cache its share, by the frequencies in the last epochs:
//
//	Size_H = Size · freq_H / (freq_L + freq_H), and the L-cache holds one package at least.
//
// Source: iCACHE, §III-A.
func (c *icache) resize() {
	sum := frequency{}
	for _, f := range c.past {
		sum.high, sum.low = sum.high+f.high, sum.low+f.low
	}
	if sum.high+sum.low == 0 {
		return
	}
	unit := c.memory.unit // whole samples, see Memory.Part
	hi, lo := bits.Mul64(uint64(c.capacityBytes/unit), sum.high)
	quotient, _ := bits.Div64(hi, lo, sum.high+sum.low)
	lowBytes := max(c.capacityBytes-int64(quotient)*unit, c.leastLow)
	c.low.resize(lowBytes, lowBytes)
	c.high.Resize(c.capacityBytes-lowBytes, c.memory.Drop)
}

// Batch implements Pool.
func (c *icache) Batch(b *Batch, answers []Answer) {
	without, changed := c.jobs.step(b)
	if changed {
		c.pull()
	}
	for i, id := range b.IDs {
		if answers[i] = (Answer{Served: id, Read: true}); !without {
			answers[i] = c.draw(b.Job, id, b.Rank[i])
		}
		c.low.use(b.Job, answers[i].Served)
	}
}

// draw is Algorithm 1.
func (c *icache) draw(job int, id draw.SampleID, rank int32) Answer {
	if c.static != nil && c.static[id] {
		return Answer{Served: id}
	}
	high := c.jobs.isHigh(job, id)
	if high {
		c.seen[job].high++
	} else {
		c.seen[job].low++
	}
	if c.low.in[id] {
		return Answer{Served: id}
	}
	if !high && !c.high.Resident(id) {
		served, ok := c.low.substitute(job, id, rank)
		if !ok {
			return Answer{Served: id, Read: true}
		}
		return Answer{Served: served}
	}
	return c.memory.Draw(c.high, stager.Use{ID: id, Score: c.list[id]}, rank)
}

// Trained implements Pool: importance counts when the next H-list is pulled.
func (c *icache) Trained(*Batch, protocol.Report) {}

var icacheOptions = slices.Concat(importanceHeapOptions, selectiveOptions, []Option{
	{
		Name: "package_bytes", Default: 0, Least: 0, Most: 1e+15, Whole: true,
		About: "least bytes of a package of the L-cache; at most a tenth of the memory is taken; " +
			"0: ten samples of mean size",
		Source: "§III-C: at least 1 MB, which are ten samples of ImageNet",
	},
	{
		Name: "probe_batches", Default: 20, Least: 1, Most: 1e+09, Whole: true,
		About: "with several jobs, batches without the cache, and then with it, that measure its " +
			"benefit",
		Source: "§III-D",
	},
	{
		Name: "benefit_threshold", Default: 1.5, Least: 0, Most: 1e+09,
		About:  "with several jobs, benefit above which a job's importance counts",
		Source: "§III-D",
	},
})

var icacheSystem = System{
	Name: "icache", Scorer: "loss", Sampler: "selective", Policy: "icache", Options: icacheOptions,
	Live: liveServed, Packs: true,
	NewPool: func(cfg PoolConfig) Pool {
		return newICache(cfg, cfg.Memory.CapacityBytes(), newSelective(cfg))
	},
	About: "the most important samples in a heap; the others by packages, and served for one " +
		"another",
	Source: "Chen et al., iCACHE: An Importance-Sampling-Informed Cache for Accelerating " +
		"I/O-Bound DNN Model Training, HPCA 2023",
}
