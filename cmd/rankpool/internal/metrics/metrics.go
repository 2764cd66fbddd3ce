// Package metrics exports a rank's statistics as Prometheus metrics.
//
// Names begin with rankpool_, units are base units, and a value that is not available has no
// series: 0 always means 0.
//
// Source: Prometheus, "Metric and label naming" and "Writing exporters".
package metrics

import (
	"math"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"rankpool/mpicache/stats"
)

// Labels are on every metric of a rank.
type Labels struct {
	// Job distinguishes the runs on a machine: the batch job's id, or any name outside one. Its label
	// is hpc_job, as in dcgm-exporter: Prometheus reserves the label job.
	Job  string
	Rank int
	Host string
}

// constant returns the labels.
func (l Labels) constant() prometheus.Labels {
	return prometheus.Labels{"hpc_job": l.Job, "rank": strconv.Itoa(l.Rank), "host": l.Host}
}

// NewRegistry returns a new registry with the metrics of one rank. It calls stats once per
// collection; calls may overlap. version is rankpool's.
func NewRegistry(labels Labels, version string,
	stats func() stats.Reading,
) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := labels.constant()
	build["version"], build["goversion"] = version, runtime.Version()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rankpool_build_info", Help: "1; labels give the version of rankpool.", ConstLabels: build,
	})
	info.Set(1)
	registry.MustRegister(info, &collector{families: describe(labels), stats: stats})
	return registry
}

// A family is a metric by name, and how its series are made from a rank's statistics.
type family struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(s stats.Reading, emit func(value float64, labels ...string))
}

// A collector turns a rank's statistics into metrics on request.
type collector struct {
	families []family
	stats    func() stats.Reading
}

// Describe describes every metric that Collect may send.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		to <- f.desc
	}
}

// Collect sends the current metrics.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	for _, f := range c.families {
		f.values(s, func(value float64, labels ...string) {
			if !math.IsNaN(value) {
				to <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
			}
		})
	}
}
