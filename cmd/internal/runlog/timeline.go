package runlog

import (
	"math"

	"rankpool/mpicache/stats"
)

const (
	// maxBins is what a plot of a page's width can show; a timeline has at least half as many, unless
	// it is very short.
	maxBins = 256
	// firstBinSeconds is the initial width of bins.
	firstBinSeconds = 0.25
)

// A Bin is a span of time, with the totals of all nodes in it, and their levels.
type Bin struct {
	stats.Sums
	Levels [levels]Gauge
}

func (b *Bin) merge(o *Bin) {
	b.Add(o.Sums)
	for l := range b.Levels {
		b.Levels[l].merge(&o.Levels[l])
	}
}

// A Timeline is the run's time in bins of equal width, [0, BinSeconds), [BinSeconds, 2 BinSeconds),
// …. When the run gets longer than 256 bins, their width doubles.
type Timeline struct {
	BinSeconds float64
	Bins       []Bin
}

// cover adds totals of [from, to) seconds, spread evenly over that time, and the levels during it.
func (t *Timeline) cover(from, to float64, sums stats.Sums, level *[levels]float64) {
	to = max(to, from+1e-3) // two lines at one moment
	t.reach(to)
	for i := int(from / t.BinSeconds); i < len(t.Bins) && float64(i)*t.BinSeconds < to; i++ {
		begin := float64(i) * t.BinSeconds
		overlap := min(to, begin+t.BinSeconds) - max(from, begin)
		if overlap <= 0 {
			continue
		}
		bin := &t.Bins[i]
		bin.Add(sums.Times(overlap / (to - from)))
		for l, x := range level {
			bin.Levels[l].observe(x, overlap)
		}
	}
}

// reach appends bins until one ends at the second or later.
func (t *Timeline) reach(second float64) {
	if t.BinSeconds == 0 {
		t.BinSeconds = firstBinSeconds
	}
	for second > maxBins*t.BinSeconds {
		t.widen()
	}
	for n := int(math.Ceil(second / t.BinSeconds)); len(t.Bins) < n; {
		t.Bins = append(t.Bins, Bin{})
	}
}

// widen makes the bins twice as wide.
func (t *Timeline) widen() {
	bins := make([]Bin, (len(t.Bins)+1)/2)
	for i := range t.Bins {
		bins[i/2].merge(&t.Bins[i])
	}
	*t = Timeline{2 * t.BinSeconds, bins}
}
