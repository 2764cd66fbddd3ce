package top

import (
	"cmp"
	"math"
	"slices"

	"rankpool/mpicache/stats"
)

// flowBetween returns what a rank did per second between two readings; later.Seconds must be
// greater.
func flowBetween(earlier, later stats.Reading) stats.Sums {
	flow := later.Totals().Minus(earlier.Totals())
	for c := range flow {
		flow[c] /= later.Seconds - earlier.Seconds
	}
	return flow
}

// nodeRates is what one or several ranks did per second, in readable units. nil: not available.
type nodeRates struct {
	servedRates
	StorageBytesPerSecond float64  `json:"storage_bytes_per_second"` // read ahead of use too
	StorageReadsPerSecond float64  `json:"storage_reads_per_second"`
	StorageLatencySeconds *float64 `json:"storage_latency_seconds"` // mean of those reads
	PeerBytesPerSecond    float64  `json:"peer_bytes_per_second"`
	PackageBytesPerSecond float64  `json:"package_bytes_per_second,omitempty"` // read
}

// served returns what trainers got, nil if it is not known.
func (r *nodeRates) served() *servedRates {
	if r == nil {
		return nil
	}
	return &r.servedRates
}

// servedRates is what trainers got per second.
type servedRates struct {
	SamplesPerSecond float64  `json:"samples_per_second"`
	LocalShare       *float64 `json:"local_share"` // of the samples, like the next four
	RemoteShare      *float64 `json:"remote_share"`
	// of the samples; they also count as local or remote
	TierShare     *float64 `json:"tier_share"`
	StorageShare  *float64 `json:"storage_share"`
	FallbackShare *float64 `json:"fallback_share"`
	StallShare    *float64 `json:"stall_share"` // of the trainers' time
}

func ratesOf(f stats.Sums) nodeRates {
	return nodeRates{
		servedRates:           servedOf(f),
		StorageBytesPerSecond: f[stats.ReadBytes],
		StorageReadsPerSecond: f[stats.ReadCount],
		StorageLatencySeconds: ratio(f[stats.ReadSeconds], f[stats.ReadCount]),
		PeerBytesPerSecond:    f[stats.PeerBytes],
		PackageBytesPerSecond: f[stats.PackageReadBytes],
	}
}

func servedOf(f stats.Sums) servedRates {
	n := f.Draws()
	return servedRates{
		SamplesPerSecond: n,
		LocalShare:       ratio(f[stats.HitsLocal], n),
		RemoteShare:      ratio(f[stats.HitsRemote], n),
		TierShare:        ratio(f[stats.TierHits], n),
		StorageShare:     ratio(f[stats.StorageReads], n),
		FallbackShare:    ratio(f[stats.FallbackReads], n),
		StallShare:       ratio(min(f[stats.StallSeconds], f[stats.TrainSeconds]), f[stats.TrainSeconds]),
	}
}

// ratio returns a/b, nil if b is 0 or a is not known.
func ratio(a, b float64) *float64 {
	if b <= 0 || math.IsNaN(a) {
		return nil
	}
	return new(a / b)
}

// A nodeRow is one line of top: the rank's last reading, and what it did since the one before.
type nodeRow struct {
	stats.Reading
	flow  stats.Sums
	jobs  map[jobKey]stats.Sums // what each training got since; nil after the first reading
	Rates *nodeRates            // nil after the first reading
	GPU   *float64              // mean utilisation of its GPUs; nil: not available
}

// MarshalJSON encodes the reading, and what top computes, as one object.
func (r nodeRow) MarshalJSON() ([]byte, error) {
	type computed struct {
		Rates *nodeRates `json:"rates"`
		GPU   *float64   `json:"gpu_utilisation"`
	}
	return stats.Join(r.Reading, computed{r.Rates, r.GPU})
}

// A nodeTotal is the last line of top: all ranks together.
type nodeTotal struct {
	Nodes    int `json:"nodes"`
	Trainers int `json:"trainers"`
	// this and the next three are of the rank that is furthest behind
	Data            string   `json:"data"`
	Epoch           int      `json:"epoch"`
	Batch           int      `json:"batch"`
	Batches         int      `json:"batches"`
	SlabBytes       int64    `json:"slab_bytes"`
	UsedBytes       int64    `json:"used_bytes"`
	Kept            int64    `json:"kept"` // of kept_of, on ranks that took over memory
	KeptOf          int64    `json:"kept_of"`
	MemoryFreeBytes *int64   `json:"memory_free_bytes"` // the smallest of all nodes
	Ready           *float64 `json:"ready"`             // mean
	NextPlanned     bool     `json:"next_planned"`      // everywhere
	GPU             *float64 `json:"gpu_utilisation"`   // mean
	// of the time that GPUs were sampled since the ranks began
	GPUIdle *float64 `json:"gpu_idle_share"`
	// the part of that idle time in which training waited for samples
	GPUWaited *float64   `json:"gpu_waited_share"`
	Rates     *nodeRates `json:"rates"`
}

func totalOf(rows []nodeRow) nodeTotal {
	t := nodeTotal{Nodes: len(rows), Epoch: -1, NextPlanned: len(rows) > 0}
	var flow stats.Sums
	var gpus []stats.GPU
	flows, training := 0, 0
	ready := 0.0
	for i, r := range rows {
		t.Trainers += r.Trainers
		t.SlabBytes += r.SlabBytes
		t.UsedBytes += r.UsedBytes
		t.Kept += r.Kept
		t.KeptOf += r.KeptOf
		t.NextPlanned = t.NextPlanned && r.NextPlanned
		gpus = append(gpus, r.Machine.GPUs...)
		if i == 0 || cmp.Or(cmp.Compare(r.Epoch, t.Epoch), cmp.Compare(r.Batch, t.Batch)) < 0 {
			t.Data, t.Epoch, t.Batch, t.Batches = r.Data, r.Epoch, r.Batch, r.Batches
		}
		if r.Machine.MemoryLimit != "" &&
			(t.MemoryFreeBytes == nil || r.Machine.MemoryFreeBytes < *t.MemoryFreeBytes) {
			t.MemoryFreeBytes = new(r.Machine.MemoryFreeBytes)
		}
		if r.Epoch >= 0 {
			training++
			ready += r.Ready
		}
		if r.Rates != nil {
			flows++
			flow.Add(r.flow)
		}
	}
	t.Ready = ratio(ready, float64(training))
	t.GPU = utilisation(gpus)
	t.GPUIdle, t.GPUWaited = idleShares(gpus)
	if flows > 0 {
		t.Rates = new(ratesOf(flow))
	}
	return t
}

// utilisation returns the mean over the GPUs that report theirs.
func utilisation(gpus []stats.GPU) *float64 {
	sum, n := 0.0, 0
	for _, g := range gpus {
		if g.Utilisation != nil {
			sum += *g.Utilisation
			n++
		}
	}
	return ratio(sum, float64(n))
}

func idleShares(gpus []stats.GPU) (idle, waited *float64) {
	var sampled, idleSeconds, waitedSeconds float64
	for _, g := range gpus {
		sampled += g.SampledSeconds
		idleSeconds += g.IdleSeconds
		waitedSeconds += float64(g.WaitedSeconds)
	}
	return ratio(idleSeconds, sampled), ratio(waitedSeconds, idleSeconds)
}

// A nodeHistory keeps the last two different readings of every rank.
type nodeHistory map[int]twoReadings // by rank

type twoReadings struct {
	earlier, later stats.Reading
	both           bool
}

// add adds a reading of all present ranks. A rank without news keeps its two readings, and one that
// was restarted begins at 0.
func (h *nodeHistory) add(nodes []stats.Reading) {
	ranks := make(map[int]twoReadings, len(nodes))
	for _, n := range nodes {
		known, found := (*h)[n.Rank]
		switch {
		case !found:
			ranks[n.Rank] = twoReadings{later: n}
		case n.Seconds == known.later.Seconds:
			known.later = n
			ranks[n.Rank] = known
		case n.Seconds < known.later.Seconds:
			ranks[n.Rank] = twoReadings{later: n, both: n.Seconds > 0}
		default:
			ranks[n.Rank] = twoReadings{earlier: known.later, later: n, both: true}
		}
	}
	*h = ranks
}

// complete reports whether every rank has two readings.
func (h nodeHistory) complete() bool {
	for _, r := range h {
		if !r.both {
			return false
		}
	}
	return true
}

// rows returns the ranks in order.
func (h nodeHistory) rows() []nodeRow {
	rows := make([]nodeRow, 0, len(h))
	for _, r := range h {
		row := nodeRow{Reading: r.later, GPU: utilisation(r.later.Machine.GPUs)}
		if r.both {
			row.flow = flowBetween(r.earlier, r.later)
			row.jobs = jobFlows(r.earlier, r.later)
			row.Rates = new(ratesOf(row.flow))
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b nodeRow) int { return cmp.Compare(a.Rank, b.Rank) })
	return rows
}
