package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"rankpool/mpicache"
)

type (
	rankStats = mpicache.RankStats
	emit      = func(value float64, labels ...string)
)

// describe lists all metrics of a rank.
func describe(labels Labels) []family {
	d := describer{constant: labels.constant()}
	d.training()
	d.storage()
	d.memory()
	d.gpus()
	return d.families
}

// A describer collects families with the same constant labels.
type describer struct {
	constant prometheus.Labels
	families []family
}

// counter adds a metric that never decreases while the rank lives.
func (d *describer) counter(name, help string, values func(rankStats, emit), labels ...string) {
	d.add(prometheus.CounterValue, name, help, values, labels)
}

// gauge adds a metric that may increase and decrease.
func (d *describer) gauge(name, help string, values func(rankStats, emit), labels ...string) {
	d.add(prometheus.GaugeValue, name, help, values, labels)
}

func (d *describer) add(kind prometheus.ValueType, name, help string, values func(rankStats, emit),
	labels []string,
) {
	desc := prometheus.NewDesc("rankpool_"+name, help, labels, d.constant)
	d.families = append(d.families, family{desc, kind, values})
}

// one is a family with a single series.
func one[T int | int64 | float64](value func(rankStats) T) func(rankStats, emit) {
	return func(s rankStats, to emit) { to(float64(value(s))) }
}

func (d *describer) training() {
	d.gauge("uptime_seconds", "Since the rank began.",
		one(func(s rankStats) float64 { return s.Seconds }))
	d.gauge("trainers", "Training processes connected to this rank.",
		one(func(s rankStats) int { return s.Trainers }))
	inTraining := func(value func(rankStats) int) func(rankStats, emit) {
		return func(s rankStats, to emit) {
			if s.Epoch >= 0 {
				to(float64(value(s)), s.Data)
			}
		}
	}
	d.gauge("epoch", "The epoch in training, from 0.",
		inTraining(func(s rankStats) int { return s.Epoch }), "data")
	d.gauge("epoch_batch", "The global batch that the slowest trainer here is at.",
		inTraining(func(s rankStats) int { return s.Batch }), "data")
	d.gauge("epoch_batches", "Global batches of the epoch.",
		inTraining(func(s rankStats) int { return s.Batches }), "data")
	d.counter("samples_total", "Samples given to the trainers here, by where they were: local (this "+
		"rank's memory), "+
		"remote (another rank's), storage (read as planned), fallback (read because a planned hit "+
		"could not be had).",
		func(s rankStats, to emit) {
			to(float64(s.HitsLocal), "local")
			to(float64(s.HitsRemote), "remote")
			to(float64(s.StorageReads), "storage")
			to(float64(s.FallbackReads), "fallback")
		}, "source")
	d.counter("sample_bytes_total", "Bytes of the samples given to the trainers here that were read "+
		"from storage for them.",
		func(s rankStats, to emit) {
			to(float64(s.StorageBytes), "storage")
			to(float64(s.FallbackBytes), "fallback")
		}, "source")
	d.counter("tier_hits_total", "Of the local and remote samples, those that were on a disk "+
		"of the node.", one(func(s rankStats) int64 { return s.TierHits }))
	d.counter("substituted_samples_total", "Samples given in the place of others.",
		one(func(s rankStats) int64 { return s.Substituted }))
	d.counter("stall_seconds_total", "Waiting for samples, summed over the trainers here.",
		one(func(s rankStats) float64 { return s.StallSeconds }))
	d.counter("train_seconds_total", "In epochs, summed over the trainers here.",
		one(func(s rankStats) float64 { return s.TrainSeconds }))
	d.gauge("window_ready_ratio", "Share of what the trainers here are given next, as far as the "+
		"staging window reaches, that is in memory.",
		func(s rankStats, to emit) {
			if s.Epoch >= 0 {
				to(s.Ready)
			}
		})
	d.gauge("next_epoch_planned", "1 when the next epoch's plan is there, so that the staging "+
		"window runs on into it.", func(s rankStats, to emit) {
		if s.Epoch >= 0 {
			to(map[bool]float64{true: 1}[s.NextPlanned])
		}
	})
}

func (d *describer) storage() {
	d.counter("storage_reads_total", "Samples read from storage by this rank, ahead of use too.",
		one(func(s rankStats) int64 { return s.Machine.StorageReads }))
	d.counter("storage_read_bytes_total", "Bytes of those reads.",
		one(func(s rankStats) int64 { return s.Machine.StorageBytes }))
	d.counter("storage_read_errors_total", "Reads of storage that failed.",
		one(func(s rankStats) int64 { return s.Machine.StorageErrors }))
	d.counter("storage_read_seconds_total", "How long those reads took, summed: divided by "+
		"storage_reads_total the mean latency.",
		one(func(s rankStats) float64 { return s.Machine.StorageSeconds }))
	d.counter("peer_received_bytes_total", "Bytes received from other ranks' memory.",
		one(func(s rankStats) int64 { return s.PeerBytes }))
}

func (d *describer) memory() {
	d.gauge("slab_size_bytes", "Memory for samples; less than at the start when it has shrunk.",
		one(func(s rankStats) int64 { return s.SlabBytes }))
	d.gauge("slab_used_bytes", "Of the memory for samples.",
		one(func(s rankStats) int64 { return s.UsedBytes }))
	d.gauge("resident_samples", "Samples that stay in memory.",
		one(func(s rankStats) int64 { return s.Residents }))
	d.gauge("resident_bytes", "Bytes of the samples that stay in memory.",
		one(func(s rankStats) int64 { return s.ResidentBytes }))
	d.gauge("memory_free_bytes", "Until the nearest limit of the control groups or the machine.",
		func(s rankStats, to emit) {
			if s.Machine.MemoryLimit != "" {
				to(float64(s.Machine.MemoryFreeBytes))
			}
		})
}

func (d *describer) gpus() {
	labels := []string{"uuid", "gpu"}
	each := func(value func(mpicache.GPU) *float64) func(rankStats, emit) {
		return func(s rankStats, to emit) {
			for _, g := range distinct(s.Machine.GPUs) {
				if v := value(g); v != nil {
					to(*v, g.UUID, strconv.Itoa(g.Index))
				}
			}
		}
	}
	sampled := func(value func(mpicache.GPU) float64) func(rankStats, emit) {
		return each(func(g mpicache.GPU) *float64 {
			if g.SampledSeconds == 0 {
				return nil
			}
			return new(value(g))
		})
	}
	d.gauge("gpu_utilisation_ratio", "Share of the last sampling period in which a kernel ran.",
		each(func(g mpicache.GPU) *float64 { return g.Utilisation }), labels...)
	d.gauge("gpu_memory_used_bytes", "Memory of the GPU in use.",
		each(func(g mpicache.GPU) *float64 { return float(g.MemoryUsedBytes) }), labels...)
	d.gauge("gpu_memory_size_bytes", "Memory of the GPU.",
		each(func(g mpicache.GPU) *float64 { return float(g.MemoryTotalBytes) }), labels...)
	d.gauge("gpu_power_watts", "Power that the GPU draws.",
		each(func(g mpicache.GPU) *float64 { return g.PowerWatts }), labels...)
	d.gauge("gpu_temperature_celsius", "Temperature of the GPU.",
		each(func(g mpicache.GPU) *float64 { return g.Celsius }), labels...)
	d.gauge("gpu_pcie_receive_bytes_per_second", "What the GPU receives over PCIe.",
		each(func(g mpicache.GPU) *float64 { return g.ReceiveBytes }), labels...)
	d.gauge("gpu_pcie_send_bytes_per_second", "What the GPU sends over PCIe.",
		each(func(g mpicache.GPU) *float64 { return g.SendBytes }), labels...)
	d.counter("gpu_sampled_seconds_total", "How long the GPU's utilisation was looked at.",
		sampled(func(g mpicache.GPU) float64 { return g.SampledSeconds }), labels...)
	d.counter("gpu_idle_seconds_total", "Of gpu_sampled_seconds_total, those in which the "+
		"GPU was idle.",
		sampled(func(g mpicache.GPU) float64 { return g.IdleSeconds }), labels...)
	d.counter("gpu_idle_waiting_seconds_total",
		"Of gpu_idle_seconds_total, those in which training waited for samples.",
		sampled(func(g mpicache.GPU) float64 { return g.WaitedSeconds }), labels...)
}

// distinct returns the GPUs with different UUIDs: two series with the same labels would make a
// collection fail.
func distinct(gpus []mpicache.GPU) []mpicache.GPU {
	seen := map[string]bool{}
	var found []mpicache.GPU
	for _, g := range gpus {
		if !seen[g.UUID] {
			seen[g.UUID] = true
			found = append(found, g)
		}
	}
	return found
}

func float(n *int64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}
