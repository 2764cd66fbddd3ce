package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"rankpool/cmd/internal/runlog"
	"rankpool/mpicache/stats"
)

// Thresholds for remarks.
const (
	slowFactor    = 1.5  // times the median of the nodes
	stallWorth    = 0.01 // of a node's time: less waiting does not matter
	fullShare     = 0.02 // of the slab that is free until the memory limit
	silentSeconds = 60.0 // from a node's last line to the run's last line
	maxRemarks    = 5    // of a kind
)

// A Remark is something that a reader should look at. Bad is set if it cost time or is a fault.
type Remark struct {
	Bad  bool
	Text string
}

// remarks finds anything out of the ordinary.
func remarks(run *runlog.Run) []Remark {
	var all []Remark
	for _, find := range []func(*runlog.Run, *Remarks){
		logRemarks, restartRemarks, fallbackRemarks, slowNodeRemarks, memoryRemarks,
		storageRemarks, silentRemarks,
	} {
		var found Remarks
		find(run, &found)
		if more := len(found) - maxRemarks; more > 0 {
			found = append(found[:maxRemarks],
				Remark{found[0].Bad, fmt.Sprintf("… and %d more like the last.", more)})
		}
		all = append(all, found...)
	}
	place := map[bool]int{true: -1} // the bad ones come first
	slices.SortStableFunc(all, func(a, b Remark) int { return place[a.Bad] - place[b.Bad] })
	return all
}

// Remarks collects remarks.
type Remarks []Remark

// Bad adds a remark about something that cost time or is a fault.
func (all *Remarks) Bad(format string, args ...any) {
	*all = append(*all, Remark{true, fmt.Sprintf(format, args...)})
}

// Note adds another remark.
func (all *Remarks) Note(format string, args ...any) {
	*all = append(*all, Remark{false, fmt.Sprintf(format, args...)})
}

// logRemarks are about the log itself.
func logRemarks(run *runlog.Run, all *Remarks) {
	if run.Broken > 0 {
		all.Note("%s of the log could not be read, as when a rank is killed while it "+
			"writes. Counts may be a little too low.", Plural(run.Broken, "line"))
	}
	if run.Earlier > 0 {
		all.Note("The log also has %s before this one, which this page leaves out.",
			Plural(int64(run.Earlier), "training"))
	}
	if !run.Ended && run.Events > 0 {
		all.Note("The log has no summary at its end: training still runs, or was killed.")
	}
	if run.Jobs > 1 {
		all.Note("The training went over %d jobs; what an epoch counted in each is added up.", run.Jobs)
	}
	for _, m := range run.Marks {
		if m.Kind == runlog.Paused {
			all.Note("Nothing ran for %s at %s; the plots leave that time out.",
				Span(m.Seconds), moment(m.At))
		}
	}
}

func restartRemarks(run *runlog.Run, all *Remarks) {
	for _, m := range run.Restarts() {
		in := ""
		if m.Epoch >= 0 {
			in = fmt.Sprintf(", in epoch %d", m.Epoch)
		}
		all.Bad("%s restarted at %s%s. %s", upper(restarted(&m, run)), moment(m.At), in, keptIn(&m))
	}
}

// keptIn describes what happened to the samples in memory in a restart.
func keptIn(m *runlog.Mark) string {
	if m.Warm == 0 {
		return "The samples in its memory were lost."
	}
	kept := fmt.Sprintf("Kept %s of %s samples in memory", Count(float64(m.Kept)),
		Count(float64(m.KeptOf)))
	if m.Warm < m.Nodes {
		kept += fmt.Sprintf("; what was in memory on %s was lost", Plural(int64(m.Nodes-m.Warm), "node"))
	}
	return kept + "."
}

// restarted describes which ranks restarted.
func restarted(m *runlog.Mark, run *runlog.Run) string {
	switch {
	case m.Nodes == 1:
		return fmt.Sprintf("node %d was", m.Rank)
	case m.Nodes >= len(run.Nodes):
		return "the cache was"
	}
	return fmt.Sprintf("%d nodes were", m.Nodes)
}

func fallbackRemarks(run *runlog.Run, all *Remarks) {
	for i := range run.Epochs {
		if e := &run.Epochs[i]; e.Sums[stats.FallbackReads] > 0 {
			all.Bad("Fallback reads in epoch %d: trainers read %s of %s samples from "+
				"storage themselves: a rank died, a peer was late, or memory was short.",
				e.Epoch, Count(e.Sums[stats.FallbackReads]), Count(e.Draws()))
		}
	}
}

// slowNodeRemarks compares the nodes' waiting and their read times.
func slowNodeRemarks(run *runlog.Run, all *Remarks) {
	if hostsOf(run) < 3 { // two have no median
		return
	}
	waitOf := func(n *runlog.NodeRun) float64 {
		return n.Sums.Share(stats.StallSeconds, stats.TrainSeconds)
	}
	readOf := func(n *runlog.NodeRun) float64 {
		return n.Sums.Share(stats.ReadSeconds, stats.ReadCount)
	}
	waits, reads := medianOf(run.Nodes, waitOf), medianOf(run.Nodes, readOf)
	for i := range run.Nodes {
		n := &run.Nodes[i]
		wait, read := waitOf(n), readOf(n)
		slow := read > slowFactor*reads && reads > 0
		reading := fmt.Sprintf("a read of storage took it %s, the median node %s", In(times, read),
			In(times, reads))
		switch {
		case wait > slowFactor*waits && wait > stallWorth:
			if !slow {
				reading += ": check its CPU and its network"
			}
			all.Bad("%s waited for samples %s of its time, the median node %s: %s.",
				upper(nodeName(n)), Percent(wait), Percent(waits), reading)
		case slow:
			all.Note("%s has slow storage: %s. Its trainers did not wait longer for it.",
				upper(nodeName(n)), reading)
		}
	}
}

func memoryRemarks(run *runlog.Run, all *Remarks) {
	for i := range run.Nodes {
		n := &run.Nodes[i]
		limit := ""
		if n.Limit != "" {
			limit = " (" + n.Limit + ")"
		}
		free, slab := &n.Levels[runlog.FreeBytes], &n.Levels[runlog.SlabBytes]
		if s := n.Shrink; s != nil {
			all.Bad("The slab of %s shrank from %s to %s, the first time at %s: memory was short%s.",
				nodeName(n), In(sizes, float64(s.From)), In(sizes, float64(s.To)), moment(s.At), limit)
		} else if free.Seen() && free.Min < fullShare*slab.Max {
			all.Bad("%s had only %s of memory left before its limit%s; give the cache less "+
				"with --memory.", upper(nodeName(n)), In(sizes, free.Min), limit)
		}
	}
}

func storageRemarks(run *runlog.Run, all *Remarks) {
	for i := range run.Nodes {
		if n := &run.Nodes[i]; n.Sums[stats.ReadErrors] > 0 {
			all.Bad("On %s %s of storage failed.", nodeName(n),
				Plural(int64(n.Sums[stats.ReadErrors]), "read"))
		}
	}
}

func silentRemarks(run *runlog.Run, all *Remarks) {
	if missing := run.Ranks - len(run.Nodes); missing > 0 && len(run.Nodes) > 0 {
		all.Bad("The log has no line about %s of %d.", Plural(int64(missing), "node"), run.Ranks)
	}
	for i := range run.Nodes {
		if n := &run.Nodes[i]; n.Silent > silentSeconds {
			all.Bad("%s sent nothing in the last %s.", upper(nodeName(n)), Span(n.Silent))
		}
	}
}

// medianOf returns the median of the known values, NaN if there are none.
func medianOf[T any](all []T, value func(*T) float64) float64 {
	var known []float64
	for i := range all {
		if v := value(&all[i]); !math.IsNaN(v) {
			known = append(known, v)
		}
	}
	if len(known) == 0 {
		return math.NaN()
	}
	slices.Sort(known)
	return known[(len(known)-1)/2]
}

// Plural formats a number of things with their name.
func Plural(n int64, what string) string {
	if n == 1 {
		return "one " + what
	}
	return Count(float64(n)) + " " + what + "s"
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
