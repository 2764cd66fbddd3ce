package runlog

import (
	"math"

	"rankpool/mpicache"
)

// A Quantity is something that ranks count.
type Quantity int

// The quantities: samples delivered to trainers, by source; seconds; bytes; reads of storage,
// including those ahead of use; and seconds of GPUs, summed over a node's.
const (
	HitsLocal Quantity = iota
	HitsRemote
	TierHits // of the two above
	StorageReads
	FallbackReads
	Substituted
	StallSeconds
	TrainSeconds
	PeerBytes
	FallbackBytes
	GivenBytes // of StorageReads and FallbackReads
	ReadCount
	ReadBytes
	ReadSeconds
	ReadErrors
	GPUSampled
	GPUIdle
	GPUWaited
	quantities
)

func (q Quantity) limit() float64 {
	switch q {
	case StallSeconds, TrainSeconds, ReadSeconds, GPUSampled, GPUIdle, GPUWaited:
		return maxSeconds
	}
	return maxCount
}

// ofGPU reports whether the quantity is a sum over GPUs, which may appear and disappear while a
// rank lives.
func (q Quantity) ofGPU() bool { return q >= GPUSampled }

// Sums has a value for each Quantity.
type Sums [quantities]float64

// Draws returns the number of samples delivered to trainers.
func (s *Sums) Draws() float64 {
	return s[HitsLocal] + s[HitsRemote] + s[StorageReads] + s[FallbackReads] + s[Substituted]
}

// Hits returns the number of those that came from the ranks' memory or tiers.
func (s *Sums) Hits() float64 { return s[HitsLocal] + s[HitsRemote] }

// Share returns one of the sums divided by another, NaN if that is 0.
func (s *Sums) Share(of, by Quantity) float64 { return Ratio(s[of], s[by]) }

// Ratio returns of/by, and NaN if by is 0, or too small to have been measured.
func Ratio(of, by float64) float64 {
	if math.Abs(by) < 1e-12 {
		return math.NaN()
	}
	return of / by
}

func (s *Sums) add(d *Sums, share float64) {
	for q := range s {
		s[q] += d[q] * share
	}
}

// sumsOf returns a rank's totals since it started.
func sumsOf(r *mpicache.RankStats) Sums {
	s := Sums{
		HitsLocal: float64(r.HitsLocal), HitsRemote: float64(r.HitsRemote), TierHits: float64(r.TierHits),
		StorageReads: float64(r.StorageReads), FallbackReads: float64(r.FallbackReads),
		Substituted:  float64(r.Substituted),
		StallSeconds: r.StallSeconds, TrainSeconds: r.TrainSeconds,
		PeerBytes: float64(r.PeerBytes), FallbackBytes: float64(r.FallbackBytes),
		GivenBytes: float64(r.StorageBytes),
		ReadCount:  float64(r.Machine.StorageReads), ReadBytes: float64(r.Machine.StorageBytes),
		ReadSeconds: r.Machine.StorageSeconds, ReadErrors: float64(r.Machine.StorageErrors),
	}
	for _, g := range r.Machine.GPUs {
		s[GPUSampled] += g.SampledSeconds
		s[GPUIdle] += g.IdleSeconds
		s[GPUWaited] += g.WaitedSeconds
	}
	return s
}

// A Level is a property of a node at a moment, or in the time between two lines.
type Level int

// The levels: bytes of memory, shares in [0, 1], and seconds of a storage read.
const (
	SlabBytes Level = iota
	UsedBytes
	ResidentBytes
	FreeBytes // until the nearest limit
	Ready
	StallShare
	ReadLatency
	Utilisation // the mean of the node's GPUs
	levels
)

// gaugesOf returns a node's levels, NaN if unknown; StallShare and ReadLatency cannot be known from
// one line.
func gaugesOf(r *mpicache.RankStats) [levels]float64 {
	nan := math.NaN()
	l := [levels]float64{
		SlabBytes: float64(r.SlabBytes), UsedBytes: float64(r.UsedBytes),
		ResidentBytes: float64(r.ResidentBytes),
		FreeBytes:     nan, Ready: r.Ready, StallShare: nan, ReadLatency: nan, Utilisation: nan,
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
func (g *Gauge) Mean() float64 { return Ratio(g.sum, g.weight) }

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
