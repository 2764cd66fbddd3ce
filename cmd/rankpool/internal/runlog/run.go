package runlog

import (
	"cmp"
	"time"
)

// A Run is what one or more logs tell of a training.
type Run struct {
	Events  int64 // that were read
	Broken  int64 // lines that are no event
	Unknown int64 // events of a name that this package does not know
	Earlier int   // trainings before this one in the same logs

	Data    string    // the data set's name, "" where nothing tells it
	Ranks   int       // as many as the log tells of
	Ended   bool      // the last job has written its summary
	Jobs    int       // that have written something: more than 1 after a requeue
	Begin   time.Time // of the first node, zero without node lines
	Seconds float64   // from the begin to the last line of a node, without pauses
	Wall    float64   // seconds, the sum of what the jobs' summaries say
	Newest  int       // the highest epoch that anything tells of, -1 without any

	// of the first data set, in order; a job's last event of an epoch counts, and jobs' are added
	Epochs     []Epoch
	Passes     []Epoch // of the other data sets
	Nodes      []NodeRun
	Timeline   Timeline // empty without node lines
	Marks      []Mark   // in order of time
	Importance []Distribution
	Histograms []Importance // of at most 32 of these epochs, the first and the last among them
}

// A NodeRun is what one node did in the run, over all its starts.
type NodeRun struct {
	Rank     int
	Host     string
	Sums     Sums
	Levels   [levels]Gauge
	GPUs     []GPURun
	Restarts int
	Silent   float64 // seconds from its last line to the run's last line
	Limit    string  // the memory limit that was the nearest at last, in words
	Shrink   *Shrink // nil: the slab has kept its size
}

// A GPURun is one GPU's seconds over the run.
type GPURun struct {
	UUID, Name  string
	Index       int     // NVML's
	Sampled     float64 // seconds
	Idle        float64 // of those
	Waited      float64 // of those that it was idle: training waited for samples
	Utilisation Gauge

	before [3]float64 // the three, at the last line
}

// A Shrink is the first time that a slab gave memory back, and how small it became in the end.
type Shrink struct {
	At       float64 // seconds
	From, To int64   // bytes
}

// A MarkKind says what happened.
type MarkKind int

// What is marked on the time axis.
const (
	EpochBegun MarkKind = iota
	Restarted           // ranks are there again, from 0
	Paused              // nothing ran; the time is left out
	markKinds
)

// A Mark is something that happened at a moment.
type Mark struct {
	Kind    MarkKind
	At      float64 // seconds
	Epoch   int     // which begun, or in which it happened
	Rank    int     // the first that was seen
	Nodes   int     // so many restarted, within a minute
	Seconds float64 // of a pause
}

// Totals are the sums over the nodes.
func (r *Run) Totals() Sums {
	var t Sums
	for i := range r.Nodes {
		t.add(&r.Nodes[i].Sums, 1)
	}
	return t
}

// GPUSeconds are the seconds in which GPUs were sampled, of those idle, and of those in which
// training waited for samples: means over the GPUs that were sampled, of which there are so many.
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

// Restarts are the marks of restarts. When a rank dies, all may be started again.
func (r *Run) Restarts() []Mark {
	var all []Mark
	for _, m := range r.Marks {
		if m.Kind == Restarted {
			all = append(all, m)
		}
	}
	return all
}

// WallSeconds is how long the run took, as well as the log tells: by its node lines, else by its
// summaries, else by the epochs that it finished.
func (r *Run) WallSeconds() float64 {
	if known := cmp.Or(r.Seconds, r.Wall); known > 0 {
		return known
	}
	sum := 0.0
	for i := range r.Epochs {
		sum += r.Epochs[i].Seconds
	}
	return sum
}
