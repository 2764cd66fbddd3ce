// Package summary prints what came of a run, from its run log.
package summary

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/mpicache/stats"
)

// An epochRow is one "epoch" event of the run log.
type epochRow = stats.Epoch

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
}

// Print prints the table of the epochs and, if there are GPUs, what they did.
func (l ranLog) Print(w io.Writer, s Show) error {
	if len(l.epochs) == 0 {
		_, err := io.WriteString(w, l.nothing(s))
		return err
	}
	if err := printBrief(w, l.epochs, s.Restarts); err != nil {
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

func totalOf(rows []epochRow) (total epochRow) {
	for _, r := range rows {
		total.Add(r.Sums)
	}
	return total
}

func percent(part, whole float64) string {
	return fmt.Sprintf("%.1f %%", 100*part/max(whole, 1))
}
