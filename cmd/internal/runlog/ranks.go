package runlog

import (
	"cmp"
	"slices"
	"time"

	"rankpool/mpicache/stats"
)

// A rank is a Builder's state of a rank.
type rank struct {
	run     NodeRun
	at      time.Time  // of its last line
	seconds float64    // since it started, at that line
	sums    stats.Sums // at that line
	epoch   int        // at that line
	job     int        // that it was in
	slab    int64      // bytes, at that line
}

// unknownEpoch is the epoch of a restart that precedes a rank's first line.
const unknownEpoch = -1

// node handles a line of a rank in an epoch of the training; -1 is none.
func (b *Builder) node(n *stats.Reading, epoch int) {
	k, known := b.ranks[n.Rank]
	if !known {
		k = &rank{run: NodeRun{Rank: n.Rank}}
		b.ranks[n.Rank] = k
	}
	job := b.jobs
	if b.over {
		job++ // its first lines come before its first epoch
	}
	now := n.Totals()
	from, delta, fresh := k.at, now, !known || job != k.job || n.Seconds < k.seconds ||
		fell(&k.sums, &now)
	if fresh {
		from = n.Time.Add(-time.Duration(n.Seconds * float64(time.Second)))
		k.slab = n.SlabBytes
	} else {
		for q := range delta {
			delta[q] = max(0, now[q]-k.sums[q])
		}
	}
	if pause := b.clock.advance(from, n.Time, fresh); pause > 0 {
		b.mark(Mark{Kind: Paused, At: b.clock.second(from), Seconds: pause, Epoch: epoch, Rank: n.Rank})
	}
	begin, end := b.clock.second(from), b.clock.second(n.Time)
	switch {
	case !fresh || known && job != k.job:
	case known:
		k.run.Restarts++
		b.restarted(n, max(k.epoch, 0), begin)
	case b.again: // the rank before it wrote no line
		k.run.Restarts++
		b.restarted(n, unknownEpoch, begin)
	}
	if epoch >= 0 {
		b.epochBegun(epoch, end)
	}
	level := gaugesOf(n)
	level[StallShare], level[ReadLatency] = delta.Share(stats.StallSeconds, stats.TrainSeconds),
		delta.Share(stats.ReadSeconds, stats.ReadCount)
	b.run.Timeline.cover(begin, end, delta, &level)
	k.run.take(n, delta, &level, end-begin, fresh)
	if n.SlabBytes < k.slab {
		k.run.shrink(end, k.slab, n.SlabBytes)
	}
	b.run.Data = cmp.Or(b.run.Data, n.Data)
	k.at, k.seconds, k.sums, k.epoch, k.slab, k.job = n.Time, n.Seconds, now, epoch, n.SlabBytes, job
}

// fell reports whether a total is less than it was, which does not happen while a rank lives.
// Totals in a log may have been rounded twice.
func fell(before, now *stats.Sums) bool {
	// relative: a million times the rounding error of float64; after a restart a total starts again
	// from 0
	const rounding = 1e-9
	for q := range now {
		if before[q]-now[q] > rounding*before[q] && stats.Counter(q) < stats.GPUSampled {
			return true
		}
	}
	return false
}

// take adds what the node did in some seconds. fresh means that its process started with them.
func (r *NodeRun) take(
	n *stats.Reading, delta stats.Sums, level *[levels]float64, seconds float64, fresh bool,
) {
	r.Host, r.Limit = cmp.Or(n.Host, r.Host), cmp.Or(n.Machine.MemoryLimit, r.Limit)
	r.Sums.Add(delta)
	for l, x := range level {
		r.Levels[l].observe(x, max(seconds, 1e-3))
	}
	for i := range n.Machine.GPUs {
		g := &n.Machine.GPUs[i]
		at := slices.IndexFunc(r.GPUs, func(k GPURun) bool {
			return k.UUID == g.UUID && k.Index == g.Index
		})
		if at < 0 {
			if len(r.GPUs) == maxGPUs {
				continue
			}
			at = len(r.GPUs)
			r.GPUs = append(r.GPUs, GPURun{UUID: g.UUID, Name: g.Name, Index: g.Index})
		}
		k := &r.GPUs[at]
		if fresh {
			k.before = stats.GPU{}
		}
		k.Sampled += max(0, g.SampledSeconds-k.before.SampledSeconds)
		k.Idle += max(0, g.IdleSeconds-k.before.IdleSeconds)
		k.Waited += max(0, float64(g.WaitedSeconds-k.before.WaitedSeconds))
		k.before = *g
		if g.Utilisation != nil {
			k.Utilisation.observe(*g.Utilisation, max(seconds, 1e-3))
		}
	}
}

func (r *NodeRun) shrink(at float64, from, to int64) {
	if r.Shrink == nil {
		r.Shrink = &Shrink{At: at, From: from}
	}
	r.Shrink.To = to
}
