package rank

import "math"

// An idleInterval is an interval in which GPUs were sampled.
type idleInterval struct {
	seconds float64   // its length
	stalled float64   // of which training waited for samples, mean over the trainers; NaN: unknown
	sampled []float64 // seconds, a GPU: the length, or less where its utilisation was not available
	idle    []float64 // seconds, a GPU, in [0, sampled]
}

func newIdleInterval(gpus int) idleInterval {
	return idleInterval{sampled: make([]float64, gpus), idle: make([]float64, gpus)}
}

// idleSums are seconds of one GPU: 0 ≤ waited ≤ idle ≤ sampled. waited is NaN if it is not known.
type idleSums struct{ sampled, idle, waited float64 }

// idleHistory is how many intervals are kept. Training reports at least once a second how long it
// waited, and at the end of a wait, so a minute covers a wait of a minute.
const idleHistory = 64

// An idleJoin adds up how long GPUs were idle, and for how much of that time training waited for
// samples. Of each interval it knows only for how many seconds a GPU was idle and training waited,
// not when: the smaller number counts as both.
//
// A wait becomes known when it has ended. Whatever exceeds the interval in which it becomes known
// is assigned to earlier intervals, newest first.
//
// Source: the question of which part of the idle time is a data stall is DS-Analyzer's: Mohan et
// al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021, section 4. Differs:
// DS-Analyzer runs training several times, with synthetic and with cached data; here one run is
// observed.
type idleJoin struct {
	sums []idleSums // a GPU
	past []idleInterval
}

func newIdleJoin(gpus int) idleJoin { return idleJoin{sums: make([]idleSums, gpus)} }

// add adds the next interval, whose stalled time may exceed its length. It keeps now's slices.
func (j *idleJoin) add(now idleInterval) {
	rest := now.stalled
	now.stalled = 0
	for g := range j.sums {
		j.sums[g].sampled += now.sampled[g]
		j.sums[g].idle += now.idle[g]
		if math.IsNaN(rest) {
			j.sums[g].waited = rest
		}
	}
	if len(j.past) == idleHistory {
		copy(j.past, j.past[1:])
		j.past = j.past[:idleHistory-1]
	}
	j.past = append(j.past, now)
	for i := len(j.past) - 1; i >= 0 && rest > 0; i-- {
		rest -= j.stall(&j.past[i], rest)
	}
}

// stall adds at most seconds of waiting to interval, and returns how many it could add.
func (j *idleJoin) stall(interval *idleInterval, seconds float64) float64 {
	before := interval.stalled
	interval.stalled = min(interval.seconds, before+seconds)
	for g, idle := range interval.idle {
		j.sums[g].waited += min(idle, interval.stalled) - min(idle, before)
	}
	return interval.stalled - before
}

// Verdicts of summary.Bound.
const (
	BoundByIO      = "I/O-bound"
	BoundByCompute = "compute-bound"
	BoundByOther   = "bound by something else (CPU, communication)"
)

// BoundShare is the share of the time from which waiting for data, or being idle, counts: storage
// that keeps its accelerators busy for 90 % of the time is fast enough for MLPerf Storage.
//
// Source: MLCommons, MLPerf Storage submission guidelines, accelerator utilisation of 3D U-Net and
// ResNet-50.
const BoundShare = 0.1
