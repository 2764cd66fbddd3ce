package metrics

import (
	"math"
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

// gauge adds a metric with a single series; a value that is not known is NaN.
func (d *describer) gauge(name, help string, value func(reading) float64) {
	d.add(prometheus.GaugeValue, name, help, func(s reading, to emit) { to(value(s)) })
}

func (d *describer) add(kind prometheus.ValueType, name, help string, values func(reading, emit),
	labels ...string,
) {
	desc := prometheus.NewDesc("rankpool_"+name, help, labels, d.constant)
	d.families = append(d.families, family{desc, kind, values})
}

// when returns a value if it is known.
func when[T int | int64 | float64](known bool, value T) float64 {
	if !known {
		return math.NaN()
	}
	return float64(value)
}

func (d *describer) training() {
	d.gauge("uptime_seconds", "Since the rank began.", func(s reading) float64 { return s.Seconds })
	d.gauge("trainers", "Training processes connected to this rank.",
		func(s reading) float64 { return float64(s.Trainers) })
	ofEpoch := func(name, help string, value func(reading) int) {
		d.add(prometheus.GaugeValue, name, help,
			func(s reading, to emit) { to(when(s.Epoch >= 0, value(s)), s.Data) }, "data")
	}
	ofEpoch("epoch", "The epoch in training, from 0.", func(s reading) int { return s.Epoch })
	ofEpoch("epoch_batch", "The global batch that the slowest trainer here is at.",
		func(s reading) int { return s.Batch })
	ofEpoch("epoch_batches", "Global batches of the epoch.",
		func(s reading) int { return s.Batches })
	d.gauge("window_ready_ratio", "Share of what the trainers here are given next, as far as the "+
		"staging window reaches, that is in memory.",
		func(s reading) float64 { return when(s.Epoch >= 0, s.Ready) })
	d.gauge("next_epoch_planned", "1 when the next epoch's plan is there, so that the staging "+
		"window runs on into it.", func(s reading) float64 {
		return when(s.Epoch >= 0, map[bool]int{true: 1}[s.NextPlanned])
	})
}

// counters adds the metrics of the table of counters. Counters with the same metric are its series.
func (d *describer) counters() {
	for _, row := range stats.Table {
		if row.Help == "" {
			continue
		}
		var all []stats.Counter
		for c := range stats.Counters {
			if stats.Table[c].Metric == row.Metric {
				all = append(all, c)
			}
		}
		var labels []string
		if len(all) > 1 {
			labels = []string{"source"}
		}
		d.add(prometheus.CounterValue, row.Metric, row.Help, func(r reading, to emit) {
			sums := r.Totals()
			for _, c := range all {
				switch {
				case row.System && sums[c] == 0: // no such system runs
				case len(all) > 1:
					to(sums[c], stats.Table[c].Source)
				default:
					to(sums[c])
				}
			}
		}, labels...)
	}
}

func (d *describer) memory() {
	d.gauge("slab_size_bytes", "Memory for samples; less than at the start when it has shrunk.",
		func(s reading) float64 { return float64(s.SlabBytes) })
	d.gauge("slab_used_bytes", "Of the memory for samples.",
		func(s reading) float64 { return float64(s.UsedBytes) })
	d.gauge("resident_samples", "Samples that stay in memory.",
		func(s reading) float64 { return float64(s.Residents) })
	d.gauge("resident_bytes", "Bytes of the samples that stay in memory.",
		func(s reading) float64 { return float64(s.ResidentBytes) })
	d.gauge("restart_resident_samples", "Samples that the rank before this one had in its memory "+
		"when it died; only where this one took the memory over.",
		func(s reading) float64 { return when(s.KeptOf > 0, s.KeptOf) })
	d.gauge("restart_kept_samples", "Of restart_resident_samples, those that this rank kept.",
		func(s reading) float64 { return when(s.KeptOf > 0, s.Kept) })
	d.gauge("memory_free_bytes", "Until the nearest limit of the control groups or the machine.",
		func(s reading) float64 {
			return when(s.Machine.MemoryLimit != "", s.Machine.MemoryFreeBytes)
		})
}

func (d *describer) gpus() {
	each := func(kind prometheus.ValueType, name, help string, value func(stats.GPU) *float64) {
		d.add(kind, name, help, func(s reading, to emit) {
			for _, g := range distinct(s.Machine.GPUs) {
				if v := value(g); v != nil {
					to(*v, g.UUID, strconv.Itoa(g.Index))
				}
			}
		}, "uuid", "gpu")
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	each(gauge, "gpu_utilisation_ratio", "Share of the last sampling period in which a kernel ran.",
		func(g stats.GPU) *float64 { return g.Utilisation })
	each(gauge, "gpu_memory_used_bytes", "Memory of the GPU in use.",
		func(g stats.GPU) *float64 { return float(g.MemoryUsedBytes) })
	each(gauge, "gpu_memory_size_bytes", "Memory of the GPU.",
		func(g stats.GPU) *float64 { return float(g.MemoryTotalBytes) })
	each(gauge, "gpu_power_watts", "Power that the GPU draws.",
		func(g stats.GPU) *float64 { return g.PowerWatts })
	each(gauge, "gpu_temperature_celsius", "Temperature of the GPU.",
		func(g stats.GPU) *float64 { return g.Celsius })
	each(gauge, "gpu_pcie_receive_bytes_per_second", "Bytes per second that the GPU receives over "+
		"PCIe.", func(g stats.GPU) *float64 { return g.ReceiveBytes })
	each(gauge, "gpu_pcie_send_bytes_per_second", "Bytes per second that the GPU sends over PCIe.",
		func(g stats.GPU) *float64 { return g.SendBytes })
	each(counter, "gpu_sampled_seconds_total", "How long the GPU's utilisation was sampled.",
		func(g stats.GPU) *float64 { return sampled(g, g.SampledSeconds) })
	each(counter, "gpu_idle_seconds_total", "Of gpu_sampled_seconds_total, those in which the "+
		"GPU was idle.", func(g stats.GPU) *float64 { return sampled(g, g.IdleSeconds) })
	each(counter, "gpu_idle_waiting_seconds_total",
		"Of gpu_idle_seconds_total, those in which training waited for samples.",
		func(g stats.GPU) *float64 { return sampled(g, float64(g.WaitedSeconds)) })
}

// sampled returns seconds of a GPU whose utilisation was sampled, else nil.
func sampled(g stats.GPU, seconds float64) *float64 {
	if g.SampledSeconds == 0 {
		return nil
	}
	return &seconds
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
