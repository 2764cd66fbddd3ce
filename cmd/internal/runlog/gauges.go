package runlog

import (
	"math"

	"rankpool/mpicache/stats"
)

// A Level is a property of a node at a moment, or in the time between two lines.
type Level int

// The levels: bytes of memory, shares in [0, 1], and seconds of a storage read.
const (
	SlabBytes Level = iota
	FreeBytes       // until the nearest limit
	StallShare
	ReadLatency
	Utilisation // the mean of the node's GPUs
	levels
)

// gaugesOf returns a node's levels, NaN if unknown; StallShare and ReadLatency cannot be known from
// one line.
func gaugesOf(r *stats.Reading) [levels]float64 {
	nan := math.NaN()
	l := [levels]float64{
		SlabBytes: float64(r.SlabBytes), FreeBytes: nan, StallShare: nan, ReadLatency: nan,
		Utilisation: nan,
	}
	if r.Machine.MemoryLimit != "" || r.Machine.MemoryFreeBytes != 0 {
		l[FreeBytes] = float64(r.Machine.MemoryFreeBytes)
	}
	n, sum := 0, 0.0
	for _, g := range r.Machine.GPUs {
		if g.Utilisation != nil {
			n++
			sum += *g.Utilisation
		}
	}
	if n > 0 {
		l[Utilisation] = sum / float64(n)
	}
	return l
}

// A Gauge is a level over time and nodes. The zero Gauge is empty.
type Gauge struct {
	sum, weight float64
	Min, Max    float64
}

// Mean returns the mean weighted by time, NaN if the Gauge is empty.
func (g *Gauge) Mean() float64 { return stats.Ratio(g.sum, g.weight) }

// Seen reports whether the Gauge has any value.
func (g *Gauge) Seen() bool { return g.weight > 0 }

func (g *Gauge) observe(x, seconds float64) {
	if !math.IsNaN(x) && seconds > 0 {
		g.merge(&Gauge{sum: x * seconds, weight: seconds, Min: x, Max: x})
	}
}

func (g *Gauge) merge(o *Gauge) {
	switch {
	case o.weight == 0:
	case g.weight == 0:
		*g = *o
	default:
		g.sum += o.sum
		g.weight += o.weight
		g.Min, g.Max = min(g.Min, o.Min), max(g.Max, o.Max)
	}
}
