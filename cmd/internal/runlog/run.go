package runlog

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"rankpool/mpicache/stats"
)

// A Run is the content of one or more logs of a training.
type Run struct {
	Events  int64 // that were read
	Broken  int64 // invalid lines
	Unknown int64 // events of unknown name
	Earlier int   // trainings before this one in the same logs

	Data    string    // the data set's name, "" if unknown
	Ranks   int       // as far as the log shows
	Ended   bool      // the last job has written its summary
	Jobs    int       // those that wrote something: more than 1 after a requeue
	Begin   time.Time // of rank 0 or the first node line; zero if the log has neither
	Seconds float64   // from the beginning to the last line of a node, without pauses
	Wall    float64   // seconds, the sum of the jobs' summaries
	Newest  int       // the highest epoch mentioned, -1 if there is none

	// of the first data set, in order; a job's last event of an epoch counts, and those of several
	// jobs are added
	Epochs     []stats.Epoch
	Passes     []stats.Epoch // of the other data sets
	Trainings  []stats.Epoch // of the trainings with job names, by name
	Nodes      []NodeRun
	Timeline   Timeline // empty without node lines
	Marks      []Mark   // in order of time
	Importance []Distribution
}

// A NodeRun is what one node did in the run, over all its starts.
type NodeRun struct {
	Rank     int
	Host     string
	Sums     stats.Sums
	Levels   [levels]Gauge
	GPUs     []GPURun
	Restarts int
	Silent   float64 // seconds from its last line to the run's last line
	Limit    string  // the last nearest memory limit, in words
	Shrink   *Shrink // nil: the slab has kept its size
}

// A GPURun is one GPU's seconds over the run.
type GPURun struct {
	UUID, Name  string
	Index       int     // NVML's
	Sampled     float64 // seconds
	Idle        float64 // of the sampled seconds
	Waited      float64 // of the idle seconds: training waited for samples
	Utilisation Gauge

	before stats.GPU // at the last line
}

// A Shrink is the first time that a slab returned memory, and its final size.
type Shrink struct {
	At       float64 // seconds
	From, To int64   // bytes
}

// A MarkKind is the kind of a Mark.
type MarkKind int

// The events marked on the time axis.
const (
	EpochBegun MarkKind = iota
	Restarted           // ranks restarted, counting from 0
	Paused              // nothing ran; the time is left out
	markKinds
)

// A Mark marks an event on the time axis.
type Mark struct {
	Kind    MarkKind
	At      float64 // seconds
	Epoch   int     // which began, or in which it happened; -1: not known
	Rank    int     // the first one seen
	Nodes   int     // number restarted within a minute
	Warm    int     // of them, those that took over the memory of the rank before
	Kept    int64   // samples that these kept in memory
	KeptOf  int64   // of so many
	Seconds float64 // of a pause
}

// Totals are the sums over the nodes.
func (r *Run) Totals() stats.Sums {
	var t stats.Sums
	for i := range r.Nodes {
		t.Add(r.Nodes[i].Sums)
	}
	return t
}

// GPUSeconds returns the seconds in which GPUs were sampled, those of them idle, and those of them
// in which training waited for samples: means over the sampled GPUs, and their number.
func (r *Run) GPUSeconds() (sampled, idle, waited float64, gpus int) {
	for i := range r.Nodes {
		for k := range r.Nodes[i].GPUs {
			if g := &r.Nodes[i].GPUs[k]; g.Sampled > 0 {
				sampled, idle, waited, gpus = sampled+g.Sampled, idle+g.Idle, waited+g.Waited, gpus+1
			}
		}
	}
	n := float64(max(1, gpus))
	return sampled / n, idle / n, waited / n, gpus
}

// Restarts returns the marks of restarts. When a rank dies, all may restart.
func (r *Run) Restarts() []Mark {
	return slices.DeleteFunc(slices.Clone(r.Marks), func(m Mark) bool { return m.Kind != Restarted })
}

// WallSeconds returns how long the run took, as far as the log shows: by its node lines, else by
// its summaries, else by the epochs that it finished.
func (r *Run) WallSeconds() float64 {
	if known := cmp.Or(r.Seconds, r.Wall); known > 0 {
		return known
	}
	sum := 0.0
	for i := range r.Epochs {
		sum += r.Epochs[i].Sums[stats.TrainSeconds]
	}
	return sum
}

// MetricNames returns the names of the metrics that training reported in any of the epochs, in
// order.
func MetricNames(epochs []stats.Epoch) []string {
	names := map[string]bool{}
	for i := range epochs {
		for name := range epochs[i].Metrics {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
