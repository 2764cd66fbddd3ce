package mpicache

import (
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
)

const (
	// Bounds of the time between two polls of the memory, whatever Config.GiveBack returns.
	leastLook, mostLook = 5 * time.Millisecond, time.Second
	// At least 1/shrinkShare of the slab is returned at a time, so that samples are rarely evicted for
	// this.
	shrinkShare = 64
	// sweepEvery is the time between two searches for samples in memory that is to be returned.
	sweepEvery = time.Second
)

// shrinker returns memory of the slab to the system when the node runs short of it, so that the job
// is not killed. It returns the end of the slab, since whole pages are needed and residents are not
// ordered by value. The slab never grows back: what exhausted the memory is likely to do so again.
type shrinker struct {
	node                  *Node
	fullBytes, leastBytes int64 // of the slab: at the start, and what the windows need
	nowBytes              int64
	swept                 time.Time
	told                  bool // it has logged that nothing is left to give

	even []int64 // the data sets' parts by size: their partitions at the start

	// gain returns what the cache is worth to the trainings on a data set.
	gain func(set int) float64
	// divide requests that memory be divided again.
	divide atomic.Bool
}

func (h *shrinker) init(n *Node) {
	h.node, h.fullBytes, h.nowBytes = n, n.cfg.SlabBytes, n.cfg.SlabBytes
	for _, d := range n.cfg.Data {
		h.leastBytes += d.WindowBytes
		h.even = append(h.even, d.PartitionBytes[n.cfg.Transport.Rank()])
	}
	h.leastBytes = min(h.fullBytes, h.leastBytes+h.leastBytes/16)
	h.gain = func(set int) float64 { return n.rank.Sets[set].Gain() }
}

// watch polls the memory until the node stops.
func (h *shrinker) watch() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-h.node.halted.Done():
			return
		case now := <-t.C:
			t.Reset(h.look(now))
		}
	}
}

// look shrinks the slab by the missing memory, and returns when to poll again.
func (h *shrinker) look(now time.Time) time.Duration {
	bytes, again := h.node.cfg.GiveBack(h.nowBytes)
	if bytes > 0 {
		h.shrink(bytes)
	}
	if h.divide.Swap(false) {
		h.divideAnew()
	}
	if h.nowBytes < h.fullBytes && now.Sub(h.swept) >= sweepEvery {
		h.swept = now
		h.sweep()
	}
	return min(max(again, leastLook), mostLook)
}

// shrink makes the slab smaller by at least bytes, as far as it may.
func (h *shrinker) shrink(bytes int64) {
	n := h.node
	to := max(h.leastBytes, h.nowBytes-max(bytes, h.fullBytes/shrinkShare))
	if to >= h.nowBytes {
		if !h.told {
			h.told = true
			n.cfg.Log.Error("the node runs out of memory and the cache has none left to give: "+
				"the job may be killed; ask for more with --mem, or for less with --memory",
				"slab", humanize.IBytes(uint64(h.nowBytes)))
		}
		return
	}
	n.cfg.Log.Warn("the node is short of memory: the cache releases some", "missing",
		humanize.IBytes(uint64(bytes)),
		"slab before", humanize.IBytes(uint64(h.nowBytes)), "slab now", humanize.IBytes(uint64(to)))
	h.nowBytes = to
	n.memory.Shrink(to)
	h.sweep()
}

// sweep makes the stores evict their samples beyond the slab's new end, and releases the free
// memory there.
func (h *shrinker) sweep() {
	for i, bytes := range h.partitions() {
		h.node.rank.Sets[i].Store().Shrink(h.nowBytes, bytes)
	}
	if err := h.node.memory.Release(); err != nil {
		h.node.cfg.Log.Error("memory cannot be returned to the system", "error", err)
	}
}
