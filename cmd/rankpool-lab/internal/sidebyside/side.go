package sidebyside

import (
	"fmt"
	"math"
	"strings"

	"rankpool/cmd/internal/report"
	"rankpool/cmd/internal/runlog"
	"rankpool/mpicache/stats"
)

// AccuracyMetric is the name of the metric by which trainings are compared, a share in which more
// is better: sampler.metric("accuracy", …) of the Python client.
const AccuracyMetric = "accuracy"

// A Side is one of the compared trainings: a system with a run for each seed.
type Side struct {
	Name    string
	Runs    []SideRun
	Missing string // why the run is missing
}

// A SideRun is the training of a Side with one seed.
type SideRun struct {
	Log *runlog.Run
	// StorageBytes is how much emulated storage delivered to the training and its tests; NaN: not
	// known.
	StorageBytes float64
}

// NewSideRun returns the training of a run log. storageBytes is how much emulated storage delivered
// to it, nil if that is not known.
func NewSideRun(log *runlog.Run, storageBytes *int64) SideRun {
	r := SideRun{Log: log, StorageBytes: math.NaN()}
	if storageBytes != nil {
		r.StorageBytes = float64(*storageBytes)
	}
	return r
}

// Brief describes in a few words how the training went.
func (r *SideRun) Brief() string {
	accuracy := ""
	if best := r.best(); !math.IsNaN(best) {
		accuracy = "accuracy up to " + accuracyText(best) + ", "
	}
	return fmt.Sprintf("%shits %s, %s in %s", accuracy, report.Percent(r.hits()),
		report.Plural(int64(len(r.Log.Epochs)), "epoch"), report.Span(r.sums()[stats.TrainSeconds]))
}

// A point is where a run, or the mean of several, was at the end of an epoch: sums since the
// beginning of training.
type point struct {
	epochs, seconds, samples float64
	accuracy                 float64 // NaN: not reported
}

// points returns a point for each epoch.
func (r *SideRun) points() []point {
	var p point
	all := make([]point, 0, len(r.Log.Epochs))
	for i := range r.Log.Epochs {
		e := &r.Log.Epochs[i]
		p.epochs++
		p.seconds += e.Sums[stats.TrainSeconds]
		p.samples += e.Draws()
		p.accuracy = math.NaN()
		if accuracy, found := e.Metrics[AccuracyMetric]; found {
			p.accuracy = accuracy
		}
		all = append(all, p)
	}
	return all
}

// best returns the highest accuracy after any epoch, NaN if there is none.
func (r *SideRun) best() float64 {
	best := math.NaN()
	for _, p := range r.points() {
		if !(p.accuracy <= best) {
			best = p.accuracy
		}
	}
	return best
}

// last returns the accuracy after the last epoch, NaN if there is none.
func (r *SideRun) last() float64 {
	if all := r.points(); len(all) > 0 {
		return all[len(all)-1].accuracy
	}
	return math.NaN()
}

// until returns the first point with at least the given accuracy, and whether there is one.
func (r *SideRun) until(accuracy float64) (point, bool) {
	for _, p := range r.points() {
		if p.accuracy >= accuracy {
			return p, true
		}
	}
	return point{}, false
}

// sums adds up the epochs.
func (r *SideRun) sums() (sums stats.Sums) {
	for i := range r.Log.Epochs {
		sums.Add(r.Log.Epochs[i].Sums)
	}
	return sums
}

// sumOf returns a function for the sum of a counter over the epochs.
func sumOf(c stats.Counter) func(*SideRun) float64 {
	return func(r *SideRun) float64 { return r.sums()[c] }
}

// shareOf returns a function for the ratio of a counter to the draws.
func shareOf(c stats.Counter) func(*SideRun) float64 {
	return func(r *SideRun) float64 { return stats.Ratio(r.sums()[c], r.draws()) }
}

// read returns the bytes that the ranks read from storage, whether for draws or not; NaN: not
// known.
func (r *SideRun) read() float64 {
	if totals := r.Log.Totals(); totals[stats.ReadCount] > 0 {
		return totals[stats.ReadBytes]
	}
	return math.NaN()
}

// draws returns how many samples were trained on.
func (r *SideRun) draws() float64 { return r.sums().Draws() }

// hits returns the share of the draws that were hits.
func (r *SideRun) hits() float64 { return stats.Ratio(r.sums().Hits(), r.draws()) }

// waited returns the share of the time in which training waited for samples.
func (r *SideRun) waited() float64 {
	return min(1, r.sums().Share(stats.StallSeconds, stats.TrainSeconds))
}

// A spread is the mean of a value over runs, and its standard deviation (of a sample: n-1), NaN
// where there is none.
type spread struct{ mean, deviation float64 }

func spreadOf(values []float64) spread {
	n, sum, squares := float64(len(values)), 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / n // NaN for no value
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return spread{mean, math.Sqrt(squares / (n - 1))}
}

// text formats a spread: the mean, and ± the deviation if runs differ.
func (s spread) text(format func(float64) string) string {
	mean := format(s.mean)
	if math.IsNaN(s.mean) || !(s.deviation > 0) {
		return mean
	}
	deviation := format(s.deviation)
	if at := strings.LastIndexByte(mean, ' '); at > 0 && strings.HasSuffix(deviation, mean[at:]) {
		mean = mean[:at]
	}
	return mean + " ± " + deviation
}

// over returns the spread of a value over the runs.
func (s *Side) over(value func(*SideRun) float64) spread {
	values := make([]float64, len(s.Runs))
	for i := range s.Runs {
		values[i] = value(&s.Runs[i])
	}
	return spreadOf(values)
}

// curve returns the mean point after each epoch that all runs finished, and the lowest and the
// highest accuracy there.
func (s *Side) curve() (mean []point, low, high []float64) {
	all := make([][]point, len(s.Runs))
	epochs := math.MaxInt
	for i := range s.Runs {
		all[i] = s.Runs[i].points()
		epochs = min(epochs, len(all[i]))
	}
	if len(all) == 0 {
		return nil, nil, nil
	}
	for e := range epochs {
		var p point
		bottom, top := math.Inf(1), math.Inf(-1)
		for _, points := range all {
			p.epochs += points[e].epochs / float64(len(all))
			p.seconds += points[e].seconds / float64(len(all))
			p.samples += points[e].samples / float64(len(all))
			p.accuracy += points[e].accuracy / float64(len(all))
			bottom, top = min(bottom, points[e].accuracy), max(top, points[e].accuracy)
		}
		mean, low, high = append(mean, p), append(low, bottom), append(high, top)
	}
	return mean, low, high
}

// or0 replaces an unknown value by 0.
func or0(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}
