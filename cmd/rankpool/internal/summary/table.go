// Package summary prints the table at the end of a run, made of its run log.
package summary

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/runlog"
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

// Read is readLog with an end, also where storage hangs.
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
		return ranLog{}, fmt.Errorf("storage does not give back %s within %v", path, patience)
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
		if e.Name != "epoch" {
			return
		}
		same := func(r epochRow) bool { return r.Data == e.Epoch.Data && r.Epoch == e.Epoch.Epoch }
		if at := slices.IndexFunc(log.epochs, same); at >= 0 {
			log.epochs[at] = *e.Epoch
		} else {
			log.epochs = append(log.epochs, *e.Epoch)
		}
	})
	log.run = events.Run()
	return log, err
}

// Print prints the table of the epochs and, if there are GPUs, what they did.
func (l ranLog) Print(w io.Writer, restarts int) error {
	if err := printEpochs(w, l.epochs, restarts); err != nil {
		return err
	}
	sentence := gpuSentence(l.run)
	if sentence == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, sentence)
	return err
}

// windowHits is the number of hits that nothing was kept for: draws that found their sample still
// held for another draw, in the window of samples read ahead of their use. The window is a larger
// part of a small data set than of a large one; planned hits are the policy's own, substituted
// draws among them. Those from a node's disk are neither.
func windowHits(r epochRow) int64 {
	return max(0, r.HitsLocal+r.HitsRemote+r.Substituted-r.TierHits-r.PlannedHits)
}

// printEpochs prints a table of the epochs and a line of totals. Planned hits are hits on samples
// that the policy kept.
func printEpochs(w io.Writer, rows []epochRow, restarts int) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintf(w, "rankpool: no epoch was finished; cache restarts: %d\n", restarts)
		return err
	}
	metrics := runlog.MetricNames(rows)
	header := []string{
		"epoch", "draws", "node-local hits", "remote hits", "planned hits",
		"window hits", "storage reads", "storage bytes", "fallback reads", "stall s", "seconds",
	}
	named := slices.ContainsFunc(rows, func(r epochRow) bool { return r.Data != rows[0].Data })
	if named {
		header = append([]string{"data"}, header...)
	}
	substituted := slices.ContainsFunc(rows, func(r epochRow) bool { return r.Substituted > 0 })
	if substituted {
		header = append(header, "substituted")
	}
	tiered := slices.ContainsFunc(rows, func(r epochRow) bool { return r.TierHits > 0 })
	if tiered {
		header = append(header, "of hits from tier")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, strings.Join(append(header, metrics...), "\t")+"\t")
	for _, r := range rows {
		cells := []string{
			fmt.Sprint(r.Epoch), humanize.Comma(r.Draws), humanize.Comma(r.HitsLocal),
			humanize.Comma(r.HitsRemote),
			humanize.Comma(r.PlannedHits), humanize.Comma(windowHits(r)),
			humanize.Comma(r.StorageReads), humanize.IBytes(uint64(r.StorageBytes)),
			humanize.Comma(r.FallbackReads),
			fmt.Sprintf("%.2f", r.StallSeconds), fmt.Sprintf("%.1f", r.Seconds),
		}
		if named {
			cells = append([]string{r.Data}, cells...)
		}
		if substituted {
			cells = append(cells, humanize.Comma(r.Substituted))
		}
		if tiered {
			cells = append(cells, humanize.Comma(r.TierHits))
		}
		fmt.Fprintln(table, strings.Join(append(cells, measured(r, metrics)...), "\t")+"\t")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return printTotals(w, rows, restarts)
}

func printTotals(w io.Writer, rows []epochRow, restarts int) error {
	var sum epochRow
	for _, r := range rows {
		sum.Draws += r.Draws
		sum.HitsLocal += r.HitsLocal
		sum.HitsRemote += r.HitsRemote
		sum.PlannedHits += r.PlannedHits
		sum.StorageReads += r.StorageReads
		sum.StorageBytes += r.StorageBytes
		sum.FallbackReads += r.FallbackReads
		sum.StallSeconds += r.StallSeconds
		sum.Seconds += r.Seconds
	}
	hits, planned := percent(sum.HitsLocal+sum.HitsRemote, sum.Draws),
		percent(sum.PlannedHits, sum.Draws)
	_, err := fmt.Fprintf(w,
		"total: epochs %d, draws %s, hits %s, planned hits %s, storage reads "+
			"%s (%s), fallback reads %s, stall %.2f s of %.1f s, cache restarts %d\n",
		len(rows), humanize.Comma(sum.Draws), hits, planned, humanize.Comma(sum.StorageReads),
		humanize.IBytes(uint64(sum.StorageBytes)),
		humanize.Comma(sum.FallbackReads), sum.StallSeconds, sum.Seconds, restarts)
	return err
}

func measured(r epochRow, names []string) []string {
	var cells []string
	for _, name := range names {
		cell := "-"
		if value, found := r.Metrics[name]; found {
			cell = fmt.Sprintf("%.4f", value)
		}
		cells = append(cells, cell)
	}
	return cells
}

func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
}
