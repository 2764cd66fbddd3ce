package systems

import (
	"rankpool/scheduler/draw"
)

// lcache is iCACHE's L-cache: L-samples, loaded in packages. A draw of an L-sample that it does not
// hold is served by one that it holds and that the job has not trained on in this epoch. If there
// is none, it drops everything and loads the next packages.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-C. Differs: the paper's loading thread loads when
// all of the L-cache was accessed; here the next draw that finds nothing unused does. Once all
// packages of an H-list are used up, missed L-samples are read one by one.
type lcache struct {
	memory        *Memory
	packages      *packager
	capacityBytes int64
	usedBytes     int64
	items         []draw.SampleID
	in            []bool // by sample
	random        random

	used [][]bool // by job and sample: the job trained on it in this epoch
	// by job: the candidates; some may be used or dropped by now
	unused [][]draw.SampleID
}

func newLCache(cfg PoolConfig, packages *packager, capacityBytes int64) *lcache {
	l := &lcache{
		memory: cfg.Memory, packages: packages, capacityBytes: capacityBytes,
		in: make([]bool, cfg.Samples), random: newRandom(cfg.Seed),
		used: make([][]bool, cfg.Jobs), unused: make([][]draw.SampleID, cfg.Jobs),
	}
	for job := range l.used {
		l.used[job] = make([]bool, cfg.Samples)
	}
	return l
}

// begin starts an epoch of a job: all items are unused.
func (l *lcache) begin(job int) {
	clear(l.used[job])
	l.unused[job] = append(l.unused[job][:0], l.items...)
}

// use records that a job trains on a sample.
func (l *lcache) use(job int, id draw.SampleID) { l.used[job][id] = true }

// substitute returns an item to serve for a draw of a sample that l does not hold, or false if
// there is none. It may be the sample itself, if a package loaded now has it.
func (l *lcache) substitute(job int, id draw.SampleID, rank int32) (draw.SampleID, bool) {
	l.packages.miss(id)
	if s, ok := l.pick(job); ok {
		return s, true
	}
	l.load(rank)
	if l.in[id] {
		return id, true
	}
	return l.pick(job)
}

// pick returns a random unused item.
func (l *lcache) pick(job int) (draw.SampleID, bool) {
	for len(l.unused[job]) > 0 {
		list := l.unused[job]
		k, last := l.random.below(len(list)), len(list)-1
		id := list[k]
		list[k], l.unused[job] = list[last], list[:last]
		if l.in[id] && !l.used[job][id] {
			return id, true
		}
	}
	return 0, false
}

// load replaces all items with the next packages, as many as fit. It does nothing if there are
// none.
func (l *lcache) load(rank int32) {
	if l.packages.empty() {
		return
	}
	l.resize(0, l.capacityBytes)
	for !l.packages.empty() {
		ids, bytes := l.packages.next()
		if l.usedBytes+bytes > l.capacityBytes {
			break
		}
		l.packages.take()
		l.memory.LoadPackage(ids, rank)
		for _, id := range ids {
			l.in[id] = true
		}
		l.items, l.usedBytes = append(l.items, ids...), l.usedBytes+bytes
	}
	for job := range l.unused {
		l.unused[job] = append(l.unused[job][:0], l.items...)
	}
}

// resize drops the newest items until at most keepBytes are used, and sets the capacity.
func (l *lcache) resize(keepBytes, capacityBytes int64) {
	l.capacityBytes = capacityBytes
	for l.usedBytes > keepBytes {
		last := len(l.items) - 1
		l.forget(l.items[last])
		l.memory.Drop(l.items[last])
		l.items = l.items[:last]
	}
}

// filter removes the items that are not low, and calls gone for each, which is then in memory but
// not in l.
func (l *lcache) filter(low func(draw.SampleID) bool, gone func(draw.SampleID)) {
	kept := l.items[:0]
	for _, id := range l.items {
		if low(id) {
			kept = append(kept, id)
			continue
		}
		l.forget(id)
		gone(id)
	}
	l.items = kept
}

func (l *lcache) forget(id draw.SampleID) {
	l.in[id] = false
	l.usedBytes -= l.memory.Size(id)
}
