package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"rankpool/mpicache/stats"
)

type (
	reading = stats.Reading
	emit    = func(value float64, labels ...string)
)

// describe lists all metrics of a rank.
func describe(labels Labels) []family {
	d := describer{constant: labels.constant()}
	d.training()
	d.counters()
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
func (d *describer) counter(name, help string, values func(reading, emit), labels ...string) {
	d.add(prometheus.CounterValue, name, help, values, labels)
}

// gauge adds a metric that may increase and decrease.
func (d *describer) gauge(name, help string, values func(reading, emit), labels ...string) {
	d.add(prometheus.GaugeValue, name, help, values, labels)
}

func (d *describer) add(kind prometheus.ValueType, name, help string, values func(reading, emit),
	labels []string,
) {
	desc := prometheus.NewDesc("rankpool_"+name, help, labels, d.constant)
	d.families = append(d.families, family{desc, kind, values})
}

// one returns the values of a family with a single series.
func one[T int | int64 | float64](value func(reading) T) func(reading, emit) {
	return func(s reading, to emit) { to(float64(value(s))) }
}

// when returns the values of a family with a single series, which exists while known is true.
func when(known func(reading) bool, value func(reading) float64) func(reading, emit) {
	return func(s reading, to emit) {
		if known(s) {
			to(value(s))
		}
	}
}

func (d *describer) training() {
	d.gauge("uptime_seconds", "Since the rank began.",
		one(func(s reading) float64 { return s.Seconds }))
	d.gauge("trainers", "Training processes connected to this rank.",
		one(func(s reading) int { return s.Trainers }))
	inTraining := func(s reading) bool { return s.Epoch >= 0 }
	ofEpoch := func(value func(reading) int) func(reading, emit) {
		return func(s reading, to emit) {
			if inTraining(s) {
				to(float64(value(s)), s.Data)
			}
		}
	}
	d.gauge("epoch", "The epoch in training, from 0.",
		ofEpoch(func(s reading) int { return s.Epoch }), "data")
	d.gauge("epoch_batch", "The global batch that the slowest trainer here is at.",
		ofEpoch(func(s reading) int { return s.Batch }), "data")
	d.gauge("epoch_batches", "Global batches of the epoch.",
		ofEpoch(func(s reading) int { return s.Batches }), "data")
	d.gauge("window_ready_ratio", "Share of what the trainers here are given next, as far as the "+
		"staging window reaches, that is in memory.",
		when(inTraining, func(s reading) float64 { return s.Ready }))
	d.gauge("next_epoch_planned", "1 when the next epoch's plan is there, so that the staging "+
		"window runs on into it.",
		when(inTraining, func(s reading) float64 { return map[bool]float64{true: 1}[s.NextPlanned] }))
}

// counters adds the metrics of the table of counters: a rank's and, where several trainings share
// the cache, those of each training, with the prefix training_.
func (d *describer) counters() {
	d.table("", stats.Counters, nil, func(r reading, to func(stats.Sums, ...string)) {
		to(r.Totals())
	})
	ofEach := []string{"training", "data"}
	d.table("training_", stats.PackageWriteBytes+1, ofEach,
		func(r reading, to func(stats.Sums, ...string)) {
			for i := range r.Jobs {
				to(r.Jobs[i].Sums, r.Jobs[i].Name, r.Jobs[i].Data)
			}
		})
	ofJobs := func(known func(stats.Job) bool, value func(stats.Job) float64) func(reading, emit) {
		return func(r reading, to emit) {
			for _, j := range r.Jobs {
				if known(j) {
					to(value(j), j.Name, j.Data)
				}
			}
		}
	}
	measured := func(j stats.Job) bool { return j.BatchSeconds > 0 }
	begun := func(j stats.Job) bool { return j.Epoch >= 0 }
	d.gauge("training_batch_seconds", "How long a global batch took with the cache, when its benefit "+
		"was measured last.",
		ofJobs(measured, func(j stats.Job) float64 { return j.BatchSeconds }), ofEach...)
	d.gauge("training_uncached_batch_seconds", "How long a global batch took when all samples were "+
		"read from storage. Divided by training_batch_seconds it is the benefit of the cache.",
		ofJobs(measured, func(j stats.Job) float64 { return j.UncachedBatchSeconds }), ofEach...)
	d.gauge("training_epoch", "The epoch that the training is in, from 0.",
		ofJobs(begun, func(j stats.Job) float64 { return float64(j.Epoch) }), ofEach...)
	d.gauge("training_epoch_batch", "The global batch that its slowest trainer here is at.",
		ofJobs(begun, func(j stats.Job) float64 { return float64(j.Batch) }), ofEach...)
	d.gauge("training_epoch_batches", "Global batches of its epoch.",
		ofJobs(begun, func(j stats.Job) float64 { return float64(j.Batches) }), ofEach...)
}

// table adds the metrics of the counters below end, with prefix before their names. sums passes
// sums to its argument, each with values for labels. Counters with the same metric become its
// series.
func (d *describer) table(prefix string, end stats.Counter, labels []string,
	sums func(reading, func(of stats.Sums, values ...string)),
) {
	for _, row := range stats.Table[:end] {
		if row.Help == "" {
			continue
		}
		var all []stats.Counter
		for c := range end {
			if stats.Table[c].Metric == row.Metric {
				all = append(all, c)
			}
		}
		names := slices.Clone(labels)
		if len(all) > 1 {
			names = append(names, "source")
		}
		d.counter(prefix+row.Metric, row.Help, func(r reading, to emit) {
			sums(r, func(of stats.Sums, values ...string) {
				for _, c := range all {
					switch {
					case stats.Table[c].System && of[c] == 0: // no such system runs
					case len(all) > 1:
						to(of[c], append(slices.Clone(values), stats.Table[c].Source)...)
					default:
						to(of[c], values...)
					}
				}
			})
		}, names...)
	}
}

func (d *describer) memory() {
	d.gauge("slab_size_bytes", "Memory for samples; less than at the start when it has shrunk.",
		one(func(s reading) int64 { return s.SlabBytes }))
	d.gauge("slab_used_bytes", "Of the memory for samples.",
		one(func(s reading) int64 { return s.UsedBytes }))
	d.gauge("resident_samples", "Samples that stay in memory.",
		one(func(s reading) int64 { return s.Residents }))
	d.gauge("resident_bytes", "Bytes of the samples that stay in memory.",
		one(func(s reading) int64 { return s.ResidentBytes }))
	tookOver := func(s reading) bool { return s.KeptOf > 0 }
	d.gauge("restart_resident_samples", "Samples that the rank before this one had in its memory "+
		"when it died; only where this one took the memory over.",
		when(tookOver, func(s reading) float64 { return float64(s.KeptOf) }))
	d.gauge("restart_kept_samples", "Of restart_resident_samples, those that this rank kept.",
		when(tookOver, func(s reading) float64 { return float64(s.Kept) }))
	d.gauge("memory_free_bytes", "Until the nearest limit of the control groups or the machine.",
		when(func(s reading) bool { return s.Machine.MemoryLimit != "" },
			func(s reading) float64 { return float64(s.Machine.MemoryFreeBytes) }))
}

func (d *describer) gpus() {
	labels := []string{"uuid", "gpu"}
	each := func(value func(stats.GPU) *float64) func(reading, emit) {
		return func(s reading, to emit) {
			for _, g := range distinct(s.Machine.GPUs) {
				if v := value(g); v != nil {
					to(*v, g.UUID, strconv.Itoa(g.Index))
				}
			}
		}
	}
	sampled := func(value func(stats.GPU) float64) func(reading, emit) {
		return each(func(g stats.GPU) *float64 {
			if g.SampledSeconds == 0 {
				return nil
			}
			return new(value(g))
		})
	}
	d.gauge("gpu_utilisation_ratio", "Share of the last sampling period in which a kernel ran.",
		each(func(g stats.GPU) *float64 { return g.Utilisation }), labels...)
	d.gauge("gpu_memory_used_bytes", "Memory of the GPU in use.",
		each(func(g stats.GPU) *float64 { return float(g.MemoryUsedBytes) }), labels...)
	d.gauge("gpu_memory_size_bytes", "Memory of the GPU.",
		each(func(g stats.GPU) *float64 { return float(g.MemoryTotalBytes) }), labels...)
	d.gauge("gpu_power_watts", "Power that the GPU draws.",
		each(func(g stats.GPU) *float64 { return g.PowerWatts }), labels...)
	d.gauge("gpu_temperature_celsius", "Temperature of the GPU.",
		each(func(g stats.GPU) *float64 { return g.Celsius }), labels...)
	d.gauge("gpu_pcie_receive_bytes_per_second", "Bytes per second that the GPU receives over PCIe.",
		each(func(g stats.GPU) *float64 { return g.ReceiveBytes }), labels...)
	d.gauge("gpu_pcie_send_bytes_per_second", "Bytes per second that the GPU sends over PCIe.",
		each(func(g stats.GPU) *float64 { return g.SendBytes }), labels...)
	d.counter("gpu_sampled_seconds_total", "How long the GPU's utilisation was sampled.",
		sampled(func(g stats.GPU) float64 { return g.SampledSeconds }), labels...)
	d.counter("gpu_idle_seconds_total", "Of gpu_sampled_seconds_total, those in which the "+
		"GPU was idle.",
		sampled(func(g stats.GPU) float64 { return g.IdleSeconds }), labels...)
	d.counter("gpu_idle_waiting_seconds_total",
		"Of gpu_idle_seconds_total, those in which training waited for samples.",
		sampled(func(g stats.GPU) float64 { return float64(g.WaitedSeconds) }), labels...)
}

// distinct returns the GPUs with different UUIDs: two series with the same labels would make a
// collection fail.
func distinct(gpus []stats.GPU) []stats.GPU {
	seen := map[string]bool{}
	var found []stats.GPU
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
