package top

import (
	"cmp"
	"slices"

	"rankpool/mpicache/stats"
)

// nodeRates is what one or several ranks did per second, in readable units.
type nodeRates struct {
	servedRates
	StorageBytesPerSecond float64        `json:"storage_bytes_per_second"` // read ahead of use too
	StorageReadsPerSecond float64        `json:"storage_reads_per_second"`
	StorageLatencySeconds stats.Measured `json:"storage_latency_seconds"` // mean of those reads
	PeerBytesPerSecond    float64        `json:"peer_bytes_per_second"`
	PackageBytesPerSecond float64        `json:"package_bytes_per_second,omitempty"` // read
}

// servedRates is what trainers got per second.
type servedRates struct {
	SamplesPerSecond float64        `json:"samples_per_second"`
	LocalShare       stats.Measured `json:"local_share"` // of the samples, like the next four
	RemoteShare      stats.Measured `json:"remote_share"`
	// of the samples; they also count as local or remote
	TierShare     stats.Measured `json:"tier_share"`
	StorageShare  stats.Measured `json:"storage_share"`
	FallbackShare stats.Measured `json:"fallback_share"`
	StallShare    stats.Measured `json:"stall_share"` // of the trainers' time
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

func ratio(of, by float64) stats.Measured { return stats.Measured(stats.Ratio(of, by)) }

// A nodeRow is one line of top: the rank's last reading, and what it did since the one before.
type nodeRow struct {
	stats.Reading
	earlier *stats.Reading // nil after the first reading, like Rates
	flow    stats.Sums     // per second, since the earlier one
	Rates   *nodeRates
}

// MarshalJSON encodes the reading, and what top computes, as one object.
func (r nodeRow) MarshalJSON() ([]byte, error) {
	type computed struct {
		Rates *nodeRates     `json:"rates"`
		GPU   stats.Measured `json:"gpu_utilisation"`
	}
	return stats.Join(r.Reading, computed{r.Rates, utilisation(r.Machine.GPUs)})
}

// A nodeTotal is the last line of top: all ranks together.
type nodeTotal struct {
	Nodes    int `json:"nodes"`
	Trainers int `json:"trainers"`
	// this and the next three are of the rank that is furthest behind
	Data            string         `json:"data"`
	Epoch           int            `json:"epoch"`
	Batch           int            `json:"batch"`
	Batches         int            `json:"batches"`
	SlabBytes       int64          `json:"slab_bytes"`
	UsedBytes       int64          `json:"used_bytes"`
	Kept            int64          `json:"kept"` // of kept_of, on ranks that took over memory
	KeptOf          int64          `json:"kept_of"`
	MemoryFreeBytes *int64         `json:"memory_free_bytes"` // the smallest of all nodes
	Ready           stats.Measured `json:"ready"`             // mean
	NextPlanned     bool           `json:"next_planned"`      // everywhere
	GPU             stats.Measured `json:"gpu_utilisation"`   // mean
	// of the time that GPUs were sampled since the ranks began
	GPUIdle stats.Measured `json:"gpu_idle_share"`
	// the part of that idle time in which training waited for samples
	GPUWaited stats.Measured `json:"gpu_waited_share"`
	Rates     *nodeRates     `json:"rates"`
}

func totalOf(rows []nodeRow) nodeTotal {
	t := nodeTotal{Nodes: len(rows), Epoch: -1, NextPlanned: len(rows) > 0}
	var flow, sums stats.Sums
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
		sums.Add(r.Totals())
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
	t.GPUIdle = ratio(sums[stats.GPUIdle], sums[stats.GPUSampled])
	t.GPUWaited = ratio(sums[stats.GPUWaited], sums[stats.GPUIdle])
	if flows > 0 {
		t.Rates = new(ratesOf(flow))
	}
	return t
}

// utilisation returns the mean over the GPUs that report theirs.
func utilisation(gpus []stats.GPU) stats.Measured {
	sum, n := 0.0, 0
	for _, g := range gpus {
		if g.Utilisation != nil {
			sum += *g.Utilisation
			n++
		}
	}
	return ratio(sum, float64(n))
}

// rowsAfter returns the lines of all present ranks, in order, from their lines before and new
// readings. A rank without news keeps the reading before its last; one that was restarted begins at
// 0.
func rowsAfter(before []nodeRow, nodes []stats.Reading) []nodeRow {
	rows := make([]nodeRow, 0, len(nodes))
	for _, n := range nodes {
		var earlier *stats.Reading
		at, found := slices.BinarySearchFunc(before, n.Rank,
			func(r nodeRow, rank int) int { return cmp.Compare(r.Rank, rank) })
		switch {
		case found && n.Seconds > before[at].Seconds:
			earlier = new(before[at].Reading)
		case found && n.Seconds == before[at].Seconds:
			earlier = before[at].earlier
		case found && n.Seconds > 0:
			earlier = &stats.Reading{}
		}
		r := nodeRow{Reading: n, earlier: earlier}
		if earlier != nil {
			r.flow = n.Totals().Minus(earlier.Totals()).Times(1 / (n.Seconds - earlier.Seconds))
			r.Rates = new(ratesOf(r.flow))
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b nodeRow) int { return cmp.Compare(a.Rank, b.Rank) })
	return rows
}
