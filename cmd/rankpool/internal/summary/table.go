// Package summary prints what came of a run, from its run log.
package summary

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/mpicache/stats"
)

// An epochRow is one "epoch" event of the run log.
type epochRow = runlog.Epoch

// ranLog is the content of a run log: the last event of each epoch, even if the cache was restarted
// in it, and the rest.
type ranLog struct {
	epochs []epochRow
	run    *runlog.Run
}

// Patience is how long a run whose training has ended waits for storage to return the run log.
const Patience = 10 * time.Second

// Read is readLog with a time limit, even if storage hangs.
func Read(patience time.Duration, path string, offset int64) (ranLog, error) {
	var log ranLog
	read := make(chan error, 1)
	go func() {
		var err error
		log, err = readLog(path, offset)
		read <- err
	}()
	select {
	case err := <-read:
		return log, err
	case <-time.After(patience):
		return ranLog{}, fmt.Errorf("storage does not return %s within %v", path, patience)
	}
}

// readLog reads a run log from byte offset on (0 if the file has become shorter).
func readLog(path string, offset int64) (ranLog, error) {
	if regular, err := rank.IsRegular(path); err == nil && !regular { // a device may have no end
		return ranLog{}, fmt.Errorf("--log %s is %s, not a file", path, rank.KindOf(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return ranLog{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() >= offset {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return ranLog{}, err
		}
	}
	return parseLog(f)
}

func parseLog(text io.Reader) (ranLog, error) {
	var log ranLog
	var events runlog.Builder
	_, err := runlog.Read(text, func(e runlog.Event) {
		events.Add(e)
		if e.Name != "epoch" && e.Name != "job" {
			return
		}
		same := func(r epochRow) bool {
			return r.Data == e.Epoch.Data && r.Job == e.Epoch.Job && r.Epoch == e.Epoch.Epoch
		}
		if at := slices.IndexFunc(log.epochs, same); at >= 0 {
			log.epochs[at] = *e.Epoch
		} else {
			log.epochs = append(log.epochs, *e.Epoch)
		}
	})
	log.run = events.Run()
	return log, err
}

// Show says how a run ended, and what of it is printed.
type Show struct {
	Restarts int  // of the cache
	Failed   bool // training failed, which explains epochs that are missing
	All      bool // every column
}

// Print prints the table of the epochs and, if there are GPUs, what they did.
func (l ranLog) Print(w io.Writer, s Show) error {
	show := printBrief
	switch {
	case len(l.epochs) == 0:
		_, err := io.WriteString(w, l.nothing(s))
		return err
	case s.All:
		show = printEpochs
	}
	if err := show(w, l.epochs, s.Restarts); err != nil {
		return err
	}
	sentence := gpuSentence(l.run)
	if sentence == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, sentence)
	return err
}

// nothing is said where there is no epoch.
func (l ranLog) nothing(s Show) string {
	switch {
	case s.Restarts > 0:
		return fmt.Sprintf("rankpool: no epoch was finished; cache restarts: %d\n", s.Restarts)
	case s.Failed:
		return "" // training has said why
	}
	return fmt.Sprintf("rankpool: training asked for no sample of %s: let the script read it with\n"+
		"rankpool.ImageFolder, and draw from it with rankpool.DistributedSampler (docs/python.md)\n",
		cmp.Or(l.run.Data, "the data"))
}

// A column of the table of epochs.
type column struct {
	heading string
	cell    func(epochRow) string
}

// counter returns the column of a counter.
func counter(c stats.Counter) column {
	row := stats.Table[c]
	return column{row.Heading, func(r epochRow) string {
		switch value := r.Sums()[c]; {
		case c == stats.TrainSeconds:
			return fmt.Sprintf("%.1f", value)
		case row.Unit == stats.Seconds:
			return strings.TrimSuffix(stallText(value), " s")
		case row.Unit == stats.Bytes:
			return humanize.IBytes(uint64(value))
		default:
			return humanize.Comma(int64(value))
		}
	}}
}

// columns returns the columns of a table of epochs. Substituted and evaluated samples, the reads
// for both, hits from a tier, packages, the benefit of the cache and training's metrics have a
// column if there are any; the names of the data set and the job, if there are several.
func columns(rows []epochRow) []column {
	all := []column{
		{"epoch", func(r epochRow) string { return fmt.Sprint(r.Epoch) }},
		{"draws", func(r epochRow) string { return humanize.Comma(r.Draws) }},
		counter(stats.HitsLocal), counter(stats.HitsRemote), counter(stats.PlannedHits),
		{"window hits", func(r epochRow) string { return humanize.Comma(windowHits(r)) }},
		counter(stats.StorageReads), counter(stats.StorageBytes), counter(stats.FallbackReads),
		counter(stats.StallSeconds), counter(stats.TrainSeconds),
	}
	all = named(all, rows)
	for _, c := range []stats.Counter{
		stats.Substituted, stats.SubstituteReads, stats.Evaluated, stats.EvaluatedReads,
		stats.TierHits, stats.PackageReads, stats.PackageReadBytes, stats.PackageWrites,
		stats.PackageWriteBytes,
	} {
		if slices.ContainsFunc(rows, func(r epochRow) bool { return r.Sums()[c] > 0 }) {
			all = append(all, counter(c))
		}
	}
	if slices.ContainsFunc(rows, func(r epochRow) bool { return r.BatchSeconds > 0 }) {
		all = append(all, column{"benefit", func(r epochRow) string {
			if r.BatchSeconds > 0 {
				return fmt.Sprintf("%.2f", r.Ratio())
			}
			return "-"
		}})
	}
	for _, name := range runlog.MetricNames(rows) {
		all = append(all, column{name, func(r epochRow) string {
			if value, found := r.Metrics[name]; found {
				return fmt.Sprintf("%.4f", value)
			}
			return "-"
		}})
	}
	return all
}

// named puts the names of the data set and the job first, if there are several.
func named(all []column, rows []epochRow) []column {
	if slices.ContainsFunc(rows, func(r epochRow) bool { return r.Data != rows[0].Data }) {
		all = slices.Insert(all, 0, column{"data", func(r epochRow) string { return r.Data }})
	}
	if slices.ContainsFunc(rows, func(r epochRow) bool { return r.Job != rows[0].Job }) {
		all = slices.Insert(all, 0, column{"job", func(r epochRow) string { return cmp.Or(r.Job, "-") }})
	}
	return all
}

// windowHits returns the number of hits on samples that were not kept: draws that found their
// sample still held for another draw, in the window of samples read ahead of their use. The window
// is a larger part of a small data set than of a large one. Planned hits are the policy's own,
// substituted draws among them. Hits from a node's disk count as neither.
func windowHits(r epochRow) int64 {
	return max(0, r.HitsLocal+r.HitsRemote+r.Substituted-r.TierHits-r.PlannedHits)
}

// printEpochs prints a table of the epochs and a line of totals. Planned hits are hits on samples
// that the policy kept.
func printEpochs(w io.Writer, rows []epochRow, restarts int) error {
	if err := printTable(w, columns(rows), rows); err != nil {
		return err
	}
	return printTotals(w, rows, restarts)
}

func printTable(w io.Writer, all []column, rows []epochRow) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range all {
		fmt.Fprint(table, c.heading+"\t")
	}
	fmt.Fprintln(table)
	for _, r := range rows {
		for _, c := range all {
			fmt.Fprint(table, c.cell(r)+"\t")
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// printTotals prints a line for each training, if there are several, and one for all.
func printTotals(w io.Writer, rows []epochRow, restarts int) error {
	byJob := map[string][]epochRow{}
	for _, r := range rows {
		byJob[r.Job] = append(byJob[r.Job], r)
	}
	if len(byJob) > 1 {
		for _, job := range slices.Sorted(maps.Keys(byJob)) {
			if _, err := fmt.Fprintf(w, "job %s: %s\n", cmp.Or(job, "-"),
				totalText(byJob[job])); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "total: %s, cache restarts %d\n", totalText(rows), restarts)
	return err
}

func totalText(rows []epochRow) string {
	total := totalOf(rows)
	return fmt.Sprintf("epochs %d, draws %s, hits %s, planned hits %s, storage reads "+
		"%s (%s), fallback reads %s, stall %s of %.1f s",
		len(rows), humanize.Comma(total.Draws), percent(total.HitsLocal+total.HitsRemote, total.Draws),
		percent(total.PlannedHits, total.Draws), humanize.Comma(total.StorageReads),
		humanize.IBytes(uint64(total.StorageBytes)), humanize.Comma(total.FallbackReads),
		stallText(float64(total.StallSeconds)), total.Seconds)
}

func totalOf(rows []epochRow) (total epochRow) {
	var sums stats.Sums
	for _, r := range rows {
		total.Draws += r.Draws
		sums.Add(r.Sums())
	}
	total.Set(sums)
	return total
}

// stallText returns a time that training waited, "-" if it was not measured.
func stallText(seconds float64) string {
	if math.IsNaN(seconds) {
		return "-"
	}
	return fmt.Sprintf("%.2f s", seconds)
}

func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
}
