// Package summary prints what came of a run, from its run log.
package summary

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/mpicache/stats"
)

// A Log is the content of a run log.
type Log struct{ run *runlog.Run }

// Patience is how long a run whose training has ended waits for storage to return the run log.
const Patience = 10 * time.Second

// Read is readLog with a time limit, even if storage hangs.
func Read(patience time.Duration, path string, offset int64) (Log, error) {
	var log Log
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
		return Log{}, fmt.Errorf("storage does not return %s within %v", path, patience)
	}
}

// readLog reads a run log from byte offset on (0 if the file has become shorter).
func readLog(path string, offset int64) (Log, error) {
	if regular, err := rank.IsRegular(path); err == nil && !regular { // a device may have no end
		return Log{}, fmt.Errorf("--log %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return Log{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() >= offset {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return Log{}, err
		}
	}
	return parseLog(f)
}

func parseLog(text io.Reader) (Log, error) {
	var events runlog.Builder
	_, err := runlog.Read(text, events.Add)
	return Log{events.Run()}, err
}

// Show says how a run ended, and what of it is printed.
type Show struct {
	Restarts int  // of the cache
	Failed   bool // training failed, which explains epochs that are missing
	Resumed  bool // the run log has earlier runs, whose epochs are not shown
}

// Print prints what most people want to know of the epochs, in 80 columns, and of the GPUs.
func (l Log) Print(w io.Writer, s Show) error {
	epochs := slices.Concat(l.run.Epochs, l.run.Trainings)
	if len(epochs) == 0 {
		_, err := io.WriteString(w, l.nothing(s))
		return err
	}
	all := stats.Epoch{Epoch: -1}
	for _, e := range epochs {
		all.Add(e.Sums)
	}
	if err := printTable(w, epochs, all); err != nil {
		return err
	}
	text := ""
	if math.IsNaN(all.Sums[stats.StallSeconds]) {
		text += "waited: not measured, since no DataLoader of PyTorch asked for the batches\n"
	}
	if bytes := all.Sums[stats.UnplannedBytes]; bytes > 0 {
		text += fmt.Sprintf("not planned: %s that training read from storage, outside the pieces of\n"+
			"its samples (docs/data.md)\n", humanize.IBytes(uint64(bytes)))
	}
	if s.Resumed {
		text += "these are the epochs of this run; the run log has those of earlier runs, too\n"
	}
	if s.Restarts > 0 {
		text += fmt.Sprintf("cache restarts %d\n", s.Restarts)
	}
	if sentence := gpuSentence(l.run); sentence != "" {
		text += sentence + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// nothing is said where there is no epoch.
func (l Log) nothing(s Show) string {
	switch {
	case s.Restarts > 0:
		return fmt.Sprintf("rankpool: no epoch was finished; cache restarts: %d\n", s.Restarts)
	case s.Failed:
		return "" // training has said why
	}
	return fmt.Sprintf("rankpool: training asked for no sample of %s: let the script read it with\n"+
		"rankpool.ImageFolder or rankpool.Arrays, in a DataLoader (docs/python.md)\n",
		cmp.Or(l.run.Data, "the data"))
}

// printTable prints a line for each epoch and, if there are several, for all. The names of data set
// and job come first if they differ.
func printTable(w io.Writer, epochs []stats.Epoch, all stats.Epoch) error {
	differ := func(of func(stats.Epoch) string) bool {
		return slices.ContainsFunc(epochs, func(e stats.Epoch) bool { return of(e) != of(epochs[0]) })
	}
	jobs := differ(func(e stats.Epoch) string { return e.Job })
	data := differ(func(e stats.Epoch) string { return e.Data })
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(job, set string, cells ...string) {
		if data {
			cells = slices.Insert(cells, 0, set)
		}
		if jobs {
			cells = slices.Insert(cells, 0, cmp.Or(job, "-"))
		}
		for _, cell := range cells {
			fmt.Fprint(table, cell+"\t")
		}
		fmt.Fprintln(table)
	}
	line("job", "data", "epoch", "time", "waited", "from memory", "from storage")
	if len(epochs) > 1 {
		epochs = append(epochs, all)
	}
	for _, e := range epochs {
		s, number := &e.Sums, fmt.Sprint(e.Epoch)
		if e.Epoch == all.Epoch {
			number = "all"
		}
		storage, reads := "0", int64(s[stats.StorageReads]+s[stats.FallbackReads])
		if reads > 0 {
			storage = humanize.Comma(reads) + ", " + humanize.IBytes(uint64(s[stats.StorageBytes]))
		}
		line(e.Job, e.Data, number, timeText(s[stats.TrainSeconds]),
			waitedText(s[stats.StallSeconds], s[stats.TrainSeconds]),
			fmt.Sprintf("%.1f %%", 100*(s.Hits()+s[stats.Substituted])/max(s.Draws(), 1)), storage)
	}
	return table.Flush()
}

// timeText returns a time, such as 8.4 s or 12m5s.
func timeText(seconds float64) string {
	const long = 100
	if seconds < long {
		return fmt.Sprintf("%.1f s", seconds)
	}
	return time.Duration(math.Round(seconds) * float64(time.Second)).String()
}

// waitedText returns how long training waited, and which part of its time that is; "-" if it was
// not measured.
func waitedText(waited, of float64) string {
	if math.IsNaN(waited) {
		return "-"
	}
	share := min(1, waited/cmp.Or(of, math.Inf(1)))
	return fmt.Sprintf("%s (%.0f %%)", timeText(waited), 100*share)
}
