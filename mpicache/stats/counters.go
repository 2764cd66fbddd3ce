// Package stats has the table of what ranks count: each counter's field in the run log, its metric,
// and its name in tables and plots. It also has the lines of the run log, whose counters the table
// names. Sums over ranks, epochs and time are computed for all counters at once.
//
// To add a counter, add its constant and its row in Table; mpicache/training/epochs.go counts it. A
// counter that clients tally is also in a frame of the door, and therefore in mpicache/door,
// python/rankpool/wire.py and docs/wire/README.md.
package stats

import "math"

// A Counter is something that ranks count.
type Counter int

// The counters. A tally on the wire has those to TrainSeconds, a training those to
// PackageWriteBytes.
const (
	HitsLocal Counter = iota
	HitsRemote
	StorageReads
	FallbackReads
	Substituted
	SubstituteReads // of the storage and fallback reads
	Evaluated       // samples of batches that are evaluated, not trained on; not included above
	EvaluatedReads  // of these, those that were read from storage
	UnplannedBytes  // read from storage outside the pieces of samples; not included above or below
	StorageBytes
	FallbackBytes
	StallSeconds
	TrainSeconds

	TierHits // of the local and remote hits
	// Of systems that read samples in packages.
	PackageReads
	PackageReadBytes
	PackageWrites
	PackageWriteBytes
	PlannedHits
	PeerBytes
	ReadCount // reads of storage, including those ahead of use
	ReadBytes
	ReadErrors
	ReadSeconds
	GPUSampled // this and the next two: summed over a node's GPUs
	GPUIdle
	GPUWaited
	// Unmeasured is the number of trainers that did not measure how long they waited in an epoch: if
	// there are any, StallSeconds is not known.
	Unmeasured
	Counters
)

// A Unit is what a counter counts.
type Unit int

// The units. Ranks count microseconds, and log seconds.
const (
	Samples Unit = iota
	Bytes
	Seconds
)

// A Row describes a counter.
type Row struct {
	Unit Unit
	Name string // its field in the run log; "" if it has none, or Machine has it
	// System: only some published systems, or some data, have it, so it is left out where it is 0.
	System bool

	// Its metric without the prefix, and the metric's help. Counters of one metric differ in the
	// label "source"; the first of them has the help.
	Metric, Help string

	// A source of samples: its label and class in plots, and its name there.
	Source, Place string
}

// Table has a row for each counter.
var Table = [Counters]Row{
	HitsLocal: {
		Name:   "hits_local",
		Metric: "samples_total", Help: "Samples given to the trainers here, by where they were: " +
			"local (this rank's memory), remote (another rank's), storage (read as planned), " +
			"fallback (read because a planned hit could not be had).",
		Source: "local", Place: "this node's memory",
	},
	HitsRemote: {
		Name: "hits_remote", Metric: "samples_total",
		Source: "remote", Place: "another node's memory",
	},
	StorageReads: {
		Name:   "storage_reads",
		Metric: "samples_total", Source: "storage", Place: "storage, ahead of use",
	},
	FallbackReads: {
		Name:   "fallback_reads",
		Metric: "samples_total", Source: "fallback",
		Place: "storage, by the trainer itself (fallback)",
	},
	Substituted: {
		Name: "substituted", System: true,
		Metric: "substituted_samples_total", Help: "Samples given in the place of others.",
		Source: "substituted", Place: "another sample instead",
	},
	SubstituteReads: {
		Name: "substitute_reads", System: true,
		Metric: "substitute_reads_total",
		Help: "Of the samples read from storage for the trainers here, those given in the place " +
			"of others.",
	},
	Evaluated: {
		Name: "evaluated", System: true,
		Metric: "evaluated_samples_total",
		Help: "Samples given to the trainers here to measure their losses, and not to train on. They " +
			"are not among samples_total.",
	},
	EvaluatedReads: {
		Name: "evaluated_reads", System: true,
		Metric: "evaluated_reads_total",
		Help:   "Of the evaluated samples, those that were read from storage.",
	},
	UnplannedBytes: {
		Unit: Bytes, Name: "unplanned_bytes", System: true,
		Metric: "unplanned_bytes_total",
		Help: "Bytes that training read from storage outside the pieces that its samples are made " +
			"of, through rankpool.open.",
	},
	StorageBytes: {
		Unit: Bytes, Name: "storage_bytes",
		Metric: "sample_bytes_total", Help: "Bytes of the samples given to the trainers here that " +
			"were read from storage for them.",
		Source: "storage",
	},
	FallbackBytes: {
		Unit: Bytes, Name: "fallback_bytes",
		Metric: "sample_bytes_total", Source: "fallback",
	},
	StallSeconds: {
		Unit: Seconds, Name: "stall_seconds",
		Metric: "stall_seconds_total",
		Help:   "Waiting for samples, summed over the trainers here.",
	},
	TrainSeconds: {
		Unit: Seconds, Name: "train_seconds",
		Metric: "train_seconds_total", Help: "In epochs, summed over the trainers here.",
	},
	TierHits: {
		Name:   "tier_hits",
		Metric: "tier_hits_total",
		Help:   "Of the local and remote samples, those that were on a disk of the node.",
		Source: "tier", Place: "a node's disk (tier)",
	},
	PackageReads: {
		Name: "package_reads", System: true,
		Metric: "package_reads_total", Help: "Packages of samples read, each with one read.",
	},
	PackageReadBytes: {
		Unit: Bytes, Name: "package_read_bytes", System: true,
		Metric: "package_read_bytes_total", Help: "Bytes of those reads.",
	},
	PackageWrites: {
		Name: "package_writes", System: true,
		Metric: "package_writes_total", Help: "Packages of samples written.",
	},
	PackageWriteBytes: {
		Unit: Bytes, Name: "package_write_bytes", System: true,
		Metric: "package_write_bytes_total", Help: "Bytes of those writes.",
	},
	PlannedHits: {Name: "planned_hits"},
	PeerBytes: {
		Unit: Bytes, Name: "peer_bytes", Metric: "peer_received_bytes_total",
		Help: "Bytes received from other ranks' memory.",
	},
	ReadCount: {
		Metric: "storage_reads_total",
		Help:   "Samples read from storage by this rank, ahead of use too.",
	},
	ReadBytes: {
		Unit: Bytes, Metric: "storage_read_bytes_total",
		Help: "Bytes of those reads.",
	},
	ReadErrors: {
		Metric: "storage_read_errors_total",
		Help:   "Reads of storage that failed.",
	},
	ReadSeconds: {
		Unit: Seconds, Metric: "storage_read_seconds_total",
		Help: "How long those reads took, summed: divided by storage_reads_total the mean latency.",
	},
	GPUSampled: {Unit: Seconds},
	GPUIdle:    {Unit: Seconds},
	GPUWaited:  {Unit: Seconds},
	Unmeasured: {},
}

// Values has a value for each counter.
type Values[T int64 | float64] [Counters]T

// Counts are values as ranks count them: seconds in microseconds. Integers have the same sum in any
// order, so a sum that is computed again does not fall.
type Counts = Values[int64]

// Sums are values in base units.
type Sums = Values[float64]

// Add adds other values.
func (v *Values[T]) Add(d Values[T]) {
	for c := range v {
		v[c] += d[c]
	}
}

// Minus returns v less other values.
func (v Values[T]) Minus(d Values[T]) Values[T] {
	for c := range v {
		v[c] -= d[c]
	}
	return v
}

// Times returns v times a factor.
func (v Values[T]) Times(factor T) Values[T] {
	for c := range v {
		v[c] *= factor
	}
	return v
}

// Draws returns the number of samples given to trainers to train on.
func (v Values[T]) Draws() T {
	return v.Hits() + v[StorageReads] + v[FallbackReads] + v[Substituted]
}

// Hits returns the number of those that came from the ranks' memory or tiers.
func (v Values[T]) Hits() T { return v[HitsLocal] + v[HitsRemote] }

// Share returns one of the sums divided by another, NaN if that is 0.
func (v Values[T]) Share(of, by Counter) float64 { return Ratio(float64(v[of]), float64(v[by])) }

// Ratio returns of/by, and NaN if by is 0, or too small to have been measured.
func Ratio(of, by float64) float64 {
	if math.Abs(by) < 1e-12 {
		return math.NaN()
	}
	return of / by
}

// Convert returns counts as sums. StallSeconds are NaN if a trainer did not measure them.
func Convert(counts Counts) (s Sums) {
	for c, n := range counts {
		s[c] = float64(n)
		if Table[c].Unit == Seconds {
			s[c] /= 1e6
		}
	}
	if counts[Unmeasured] > 0 {
		s[StallSeconds] = math.NaN()
	}
	return s
}
