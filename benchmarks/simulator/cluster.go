package simulator

import (
	"math/bits"
	"slices"
	"time"

	"rankpool/scheduler/systems"
)

// Cluster is the machine of the time model: the speeds of training, storage, network and memory.
// Where noted, 0 means "no limit", so the zero value is a machine on which nothing takes time. A
// Cluster is not modified once it is loaded.
type Cluster struct {
	About       string `toml:"about"`        // one line, for people
	SampleBytes int64  `toml:"sample_bytes"` // of every sample, when the trace has no sizes

	Trainer Trainer `toml:"trainer"`
	Loader  Loader  `toml:"loader"`
	Storage Storage `toml:"storage"`
	Network Network `toml:"network"`
	Memory  Memory  `toml:"memory"`
	Planner Planner `toml:"planner"`
}

// Trainer describes one rank's accelerator. A step of b samples takes Step·b/BatchSize + Reduce.
type Trainer struct {
	BatchSize int           `toml:"batch_size"` // samples that Step was measured with
	Step      time.Duration `toml:"step"`
	// the part of a step that does not depend on its batch, such as an all-reduce that computation
	// does not hide
	Reduce time.Duration `toml:"reduce"`
}

// Loader is a trainer's readers. A framework's own data loader keeps Workers · PrefetchFactor
// batches ahead.
type Loader struct {
	Workers        int `toml:"workers"` // of a trainer that read storage at the same time
	PrefetchFactor int `toml:"prefetch_factor"`
}

// Storage is the parallel file system.
type Storage struct {
	// {readers, bytes per second of all together}, readers ascending; none: no limit
	Curve       [][2]int64    `toml:"curve"`
	OpenLatency time.Duration `toml:"open_latency"`
	// from a request to its first byte
	ReadLatency time.Duration `toml:"read_latency"`
	// of all readers together; 0: no limit
	OpensPerSecond int64 `toml:"opens_per_second"`
	// over which samples are spread evenly; 0: no limit
	Targets int64 `toml:"targets"`
	// of one target; 0: no limit
	TargetBytesPerSecond int64 `toml:"target_bytes_per_second"`
}

// Network is a rank's link.
type Network struct {
	LinkBytesPerSecond int64 `toml:"link_bytes_per_second"` // into a rank; 0: no limit
	// of asking peers for a batch's samples
	Latency time.Duration `toml:"latency"`
	// what is read from storage comes over the same link
	CarriesStorage bool `toml:"carries_storage"`
}

// Memory is a rank's own.
type Memory struct {
	BytesPerSecond int64 `toml:"bytes_per_second"` // that one trainer reads; 0: no limit
}

// Planner is the speed of planning on one core.
type Planner struct {
	Draw time.Duration `toml:"draw"` // one draw of an epoch's plan
}

// Bound returns a time, in seconds, that no system can beat: the longer of computing all batches,
// and of reading distinctStorageBytes once at the best bandwidth that the ranks' readers can reach
// together.
//
// Source: design, table of numbers to meet: max(compute, distinct bytes / bandwidth).
func (c *Cluster) Bound(n Nodes, batches int, distinctStorageBytes int64) float64 {
	best := int64(0)
	for readers := range c.workers(n) * n.Ranks {
		best = max(best, c.Storage.bandwidth(readers+1))
	}
	computing := int64(batches) * c.stepNanoseconds(n.BatchSize)
	return seconds(max(computing, service(distinctStorageBytes, best)))
}

// PlanSeconds returns the time that one core takes to plan an epoch of a number of draws.
func (c *Cluster) PlanSeconds(draws int) float64 {
	return seconds(int64(draws) * int64(c.Planner.Draw))
}

// Step returns the mean time of a step, in seconds, if a data loader finds all samples in the
// rank's own memory, and if it reads all of them from storage one by one.
func (c *Cluster) Step(n Nodes) (cachedSeconds, uncachedSeconds float64) {
	samples := int64(n.Trainers * n.BatchSize)
	bytes := samples * c.SampleBytes
	cachedSeconds = c.meanStep(n, Load{LocalBytes: bytes})
	uncachedSeconds = c.meanStep(n, Load{StorageBytes: bytes, Reads: int32(samples)})
	return cachedSeconds, uncachedSeconds
}

// meanStep returns the mean step when every rank has the same load, after the first window of
// batches.
func (c *Cluster) meanStep(n Nodes, load Load) float64 {
	clock, loads := NewClock(c, n, 0), slices.Repeat([]Load{load}, n.Ranks)
	windows := func(n int) float64 {
		for range n * clock.ahead {
			clock.Batch(loads)
		}
		return clock.EndEpoch(false)
	}
	windows(1)
	return windows(4) / float64(4*clock.ahead)
}

// nopfsModel returns the machine as NoPFS's performance model sees it, with samples of one size: a
// client of storage is a rank with all its readers, and t(γ) follows from curve, latencies and
// opens.
//
// Differs: the time model has no preprocessing, so β is what training consumes.
func (c *Cluster) nopfsModel(n Nodes, sampleBytes int64) *systems.NoPFSModel {
	const noLimit = 1e9
	limited := func(bytesPerSecond int64) float64 {
		if bytesPerSecond == 0 {
			return noLimit
		}
		return float64(bytesPerSecond) / 1e6
	}
	readNs := int64(c.Storage.OpenLatency+c.Storage.ReadLatency) +
		service(sampleBytes, c.Storage.readerBandwidth())
	memory := systems.NoPFSTier{
		ReadMBps:  limited(int64(n.Trainers) * c.Memory.BytesPerSecond),
		WriteMBps: noLimit, Threads: 1,
	}
	m := &systems.NoPFSModel{
		Network: limited(c.Network.LinkBytesPerSecond),
		Tiers:   []systems.NoPFSTier{memory, memory},
	}
	batchBytes, stepNs := int64(n.Trainers*n.BatchSize)*sampleBytes, c.stepNanoseconds(n.BatchSize)
	m.Compute = float64(batchBytes) * 1e3 / float64(max(stepNs, 1))
	m.Preprocess = m.Compute
	for clients := 1; clients <= n.Ranks; clients++ {
		readers := clients * c.workers(n)
		rate := min(limited(c.Storage.bandwidth(readers)),
			limited(c.Storage.OpensPerSecond*sampleBytes))
		if readNs > 0 {
			rate = min(rate, float64(readers)*float64(sampleBytes)*1e3/float64(readNs))
		}
		m.PFS = append(m.PFS, systems.NoPFSRate{Clients: float64(clients), MBps: rate})
	}
	return m
}

// workers returns how many readers a rank has.
func (c *Cluster) workers(n Nodes) int { return n.Trainers * max(c.Loader.Workers, 1) }

// stepNanoseconds returns a step's time, rounded up.
func (c *Cluster) stepNanoseconds(batchSize int) int64 {
	measured := int64(max(c.Trainer.BatchSize, 1))
	return int64(c.Trainer.Reduce) + ceilDiv(int64(c.Trainer.Step)*int64(batchSize), measured)
}

// forwardNanoseconds returns the time of a forward pass over samples, rounded up.
func (c *Cluster) forwardNanoseconds(samples int64) int64 {
	return ceilDiv(int64(c.Trainer.Step)*samples, 3*int64(max(c.Trainer.BatchSize, 1)))
}

// bandwidth returns what n readers achieve together, in bytes per second, or 0 if nothing
// limits it: the curve, interpolated linearly, proportional to readers before its first point and
// constant after its last; and at most one target per reader and all targets.
func (s *Storage) bandwidth(readers int) int64 {
	targets := min(int64(readers), s.Targets) * s.TargetBytesPerSecond
	n, from := int64(readers), [2]int64{}
	for _, to := range s.Curve {
		if n <= to[0] {
			return tighter(max(1, from[1]+(to[1]-from[1])*(n-from[0])/(to[0]-from[0])), targets)
		}
		from = to
	}
	return tighter(from[1], targets)
}

// readerBandwidth returns the most that one reader can get, in bytes per second, or 0 if nothing
// limits it: the best share on the curve, rounded up, and one target.
func (s *Storage) readerBandwidth() int64 {
	best := int64(0)
	for _, p := range s.Curve {
		best = max(best, ceilDiv(p[1], p[0]))
	}
	return tighter(best, s.TargetBytesPerSecond)
}

// tighter returns the smaller of two limits; 0 means unlimited.
func tighter(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// service returns the time in nanoseconds, rounded up, that an amount takes at a rate per second; a
// rate of 0 has no limit. It panics if that is more than 2^61 ns, 73 years.
func service(amount, perSecond int64) int64 {
	if perSecond == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(amount), uint64(time.Second))
	low, carry := bits.Add64(low, uint64(perSecond-1), 0)
	if high += carry; high < uint64(perSecond) {
		if nanoseconds, _ := bits.Div64(high, low, uint64(perSecond)); nanoseconds <= 1<<61 {
			return int64(nanoseconds)
		}
	}
	panic("simulator: a single load takes more than 73 years: its bytes or the cluster's rates " +
		"are wrong.")
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func seconds(nanoseconds int64) float64 { return float64(nanoseconds) / 1e9 }
