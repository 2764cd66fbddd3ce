package systems

import "rankpool/scheduler"

// lcache is iCACHE's L-cache: L-samples, brought in by packages. A draw of an L-sample that is not
// here is served by one that is and that the job did not train on in this epoch. When there is
// none, everything goes and the next packages come in.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-C. Differs: the paper's loading thread loads when
// all of the L-cache was accessed; here the next draw that finds nothing unused does. When all
// packages of an H-list were loaded and used up, missed L-samples are read one by one.
type lcache struct {
	memory        *Memory
	packages      *packager
	capacityBytes int64
	usedBytes     int64
	items         []scheduler.SampleID
	in            []bool // by sample
	random        random

	epoch []int32 // by job, from 1 on
	// by job and sample: the last epoch in which the job trained on it
	used [][]int32
	// by job: what may be chosen from; entries may be used, or gone, by now
	unused [][]scheduler.SampleID
}

func newLCache(cfg PoolConfig, packages *packager, capacityBytes int64) *lcache {
	l := &lcache{
		memory: cfg.Memory, packages: packages, capacityBytes: capacityBytes,
		in: make([]bool, cfg.Samples), random: newRandom(cfg.Seed),
		epoch: make([]int32, cfg.Jobs), used: make([][]int32, cfg.Jobs),
		unused: make([][]scheduler.SampleID, cfg.Jobs),
	}
	for job := range l.used {
		l.used[job] = make([]int32, cfg.Samples)
	}
	return l
}

// begin starts an epoch of a job: all items are unused.
func (l *lcache) begin(job, epoch int) {
	l.epoch[job] = int32(epoch + 1)
	l.unused[job] = append(l.unused[job][:0], l.items...)
}

// use says that a job trains on a sample.
func (l *lcache) use(job int, id scheduler.SampleID) { l.used[job][id] = l.epoch[job] }

// substitute returns an item for a draw of a sample that is not here, or false when there is none
// that may be served. It may be the sample itself, if that comes with a package now.
func (l *lcache) substitute(job int, id scheduler.SampleID, rank int32) (scheduler.SampleID, bool) {
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
func (l *lcache) pick(job int) (scheduler.SampleID, bool) {
	for len(l.unused[job]) > 0 {
		list := l.unused[job]
		k, last := l.random.below(len(list)), len(list)-1
		id := list[k]
		list[k], l.unused[job] = list[last], list[:last]
		if l.in[id] && l.used[job][id] != l.epoch[job] {
			return id, true
		}
	}
	return 0, false
}

// load replaces all items by the next packages, as many as there is room for; if there are none, it
// does nothing.
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

// resize drops the items that came last until at most keepBytes are used, and sets the capacity.
func (l *lcache) resize(keepBytes, capacityBytes int64) {
	l.capacityBytes = capacityBytes
	for l.usedBytes > keepBytes {
		last := len(l.items) - 1
		l.forget(l.items[last])
		l.memory.Drop(l.items[last])
		l.items = l.items[:last]
	}
}

// filter keeps the items that are low, and calls gone for each other one, which is in memory but
// not here then.
func (l *lcache) filter(low func(scheduler.SampleID) bool, gone func(scheduler.SampleID)) {
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

func (l *lcache) forget(id scheduler.SampleID) {
	l.in[id] = false
	l.usedBytes -= l.memory.Size(id)
}
