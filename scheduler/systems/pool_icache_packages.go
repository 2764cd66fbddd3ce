package systems

import (
	"rankpool/scheduler/draw"
)

// packager makes the packages that iCACHE's L-cache loads, again for every H-list. L-samples missed
// since the last time come first, in the order of their misses; then the L-samples that were in
// packages before, in random order. The first time, it packs all L-samples. It leaves out what is
// in memory.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-C. Differs: what the paper's packaging thread
// reads and writes during training is not counted.
type packager struct {
	memory *Memory
	low    func(draw.SampleID) bool // whether a sample is in no H-list
	// a package ends with the sample that makes it at least this large
	bytes    int64
	random   random
	queue    [][]draw.SampleID
	packaged []bool // by sample: it was in a package
	begun    bool   // there were packages
	missed   []draw.SampleID
	isMissed []bool // by sample
}

func newPackager(cfg PoolConfig, bytes int64, low func(draw.SampleID) bool) *packager {
	return &packager{
		memory: cfg.Memory, low: low, bytes: bytes, random: newRandom(^cfg.Seed),
		packaged: make([]bool, cfg.Samples), isMissed: make([]bool, cfg.Samples),
	}
}

// miss records that a draw did not find a sample.
func (p *packager) miss(id draw.SampleID) {
	if !p.isMissed[id] {
		p.isMissed[id], p.missed = true, append(p.missed, id)
	}
}

// empty reports whether no packages are left.
func (p *packager) empty() bool { return len(p.queue) == 0 }

// next returns the samples of the next package that are not in memory, and their bytes.
func (p *packager) next() (ids []draw.SampleID, bytes int64) {
	for _, id := range p.queue[0] {
		if !p.memory.Has(id) {
			ids, bytes = append(ids, id), bytes+p.memory.Size(id)
		}
	}
	return ids, bytes
}

// take removes the next package.
func (p *packager) take() { p.queue = p.queue[1:] }

// repack makes new packages after an H-list changed.
func (p *packager) repack() {
	var ids []draw.SampleID
	for _, id := range p.missed {
		if p.fits(id) {
			ids = append(ids, id)
		}
	}
	missed := len(ids)
	for i := range p.packaged {
		if id := draw.SampleID(i); (p.packaged[i] || !p.begun) && !p.isMissed[i] &&
			p.fits(id) {
			ids = append(ids, id)
		}
	}
	p.random.shuffle(ids[missed:])
	for _, id := range p.missed {
		p.isMissed[id] = false
	}
	p.missed, p.begun = p.missed[:0], p.begun || len(ids) > 0
	p.cut(ids)
}

// fits reports whether a sample may be in a package.
func (p *packager) fits(id draw.SampleID) bool { return p.low(id) && !p.memory.Has(id) }

// cut divides ids into packages, in order.
func (p *packager) cut(ids []draw.SampleID) {
	p.queue = nil
	begin, bytes := 0, int64(0)
	for i, id := range ids {
		p.packaged[id] = true
		bytes += p.memory.Size(id)
		if bytes >= p.bytes || i == len(ids)-1 {
			p.queue = append(p.queue, ids[begin:i+1])
			begin, bytes = i+1, 0
		}
	}
}
