package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"rankpool/staging/stage"
)

// printStaged prints the summary, then a line per rank, and a line per storage target if the
// targets are known.
func printStaged(w io.Writer, r *stage.Report) error {
	copied := "copied:  "
	if r.DryRun {
		copied = "to copy: "
	}
	rate := ""
	if r.Seconds > 0 && !r.DryRun {
		rate = fmt.Sprintf(" (%s/s)", humanize.IBytes(uint64(float64(r.Bytes)/r.Seconds)))
	}
	fmt.Fprintf(w, "items:    %s (%s)\n%s %s\nskipped:  %s\nfailed:   %s\nbytes:    %s%s\n"+
		"read:     %s files, %s\nseconds:  %.2f\n",
		humanize.Comma(r.TotalItems), humanize.IBytes(uint64(r.TotalBytes)), copied,
		humanize.Comma(r.Copied), humanize.Comma(r.Skipped),
		humanize.Comma(r.Failed), humanize.IBytes(uint64(r.Bytes)), rate,
		humanize.Comma(r.StorageReads), humanize.IBytes(uint64(r.StorageBytes)), r.Seconds)
	if r.FailedList != "" {
		fmt.Fprintf(w, "list:     %s\n", r.FailedList)
	}
	if r.Released > 0 {
		fmt.Fprintf(w, "released: %s, in an archive and read last\n",
			humanize.Comma(r.Released))
	}
	if r.Stale > 0 {
		fmt.Fprintf(w, "stale:    %s, %s removed; such as %q\n", humanize.Comma(r.Stale),
			humanize.Comma(r.Pruned), r.StalePaths[0])
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "rank\thost\titems\tbytes\tread\tdestination")
	for _, rank := range r.Ranks {
		if rank.Dead {
			fmt.Fprintf(table, "%d\tdead\t?\t?\t?\t?\n", rank.Rank)
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", rank.Rank, rank.Host,
			humanize.Comma(rank.Copied+rank.Skipped),
			humanize.IBytes(uint64(rank.Bytes)), humanize.IBytes(uint64(rank.StorageBytes)),
			rank.Dest)
	}
	if err := table.Flush(); err != nil || len(r.Targets) == 0 {
		return err
	}
	return printTargets(w, r.Targets)
}

// printTargets prints how much was read from each storage target, largest first, up to maxBars of
// them.
func printTargets(w io.Writer, targets map[string]int64) error {
	names := slices.SortedFunc(maps.Keys(targets), func(a, b string) int {
		return cmp.Or(-cmp.Compare(targets[a], targets[b]), cmp.Compare(a, b))
	})
	total := int64(0)
	for _, bytes := range targets {
		total += bytes
	}
	mean := float64(total) / float64(len(targets))
	fmt.Fprintf(w, "%d storage targets, the fullest has %.2f of the mean\n", len(names),
		float64(targets[names[0]])/max(mean, 1))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range names[:min(len(names), maxBars)] {
		fmt.Fprintf(table, "%s\t%s\t%.2f\n", name, humanize.IBytes(uint64(targets[name])),
			float64(targets[name])/max(mean, 1))
	}
	return table.Flush()
}

// A stageProgress shows how far staging is: a bar on a terminal, else a line every so often.
type stageProgress struct {
	to    *os.File
	bar   *progressbar.ProgressBar // nil where to is not a terminal
	every time.Duration            // between two lines; 0: show nothing
	begin time.Time

	mu    sync.Mutex
	last  time.Time
	items int64 // that the walk has found
}

func newStageProgress(to *os.File, quiet bool, seconds float64) *stageProgress {
	p := &stageProgress{
		to: to, every: time.Duration(seconds * float64(time.Second)),
		begin: time.Now(), last: time.Now(),
	}
	if quiet {
		p.every = 0
	}
	if p.every > 0 && term.IsTerminal(int(to.Fd())) {
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(to),
			progressbar.OptionSetWidth(20), progressbar.OptionShowBytes(true),
			progressbar.OptionSetDescription("staging"),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

// walked shows the number of items that the walk has found so far.
func (p *stageProgress) walked(items int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.items = items
}

// update shows how far all ranks are.
func (p *stageProgress) update(at stage.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.every <= 0:
	case p.bar != nil:
		p.bar.ChangeMax64(max(at.AllBytes, at.Bytes+1)) // a full bar would end itself
		// a terminal that cannot be written to changes nothing
		_ = p.bar.Set64(at.Bytes)
	case time.Since(p.last) >= p.every:
		p.last = time.Now()
		fmt.Fprintln(p.to, "rankpool:", p.line(at, time.Since(p.begin)))
	}
}

// line is one progress line.
func (p *stageProgress) line(at stage.Progress, took time.Duration) string {
	if at.AllItems == 0 {
		return fmt.Sprintf("found %s items in %.0f s", humanize.Comma(p.items), took.Seconds())
	}
	rate := float64(at.Bytes) / took.Seconds()
	text := fmt.Sprintf("staged %s of %s items, %s of %s (%.0f %%) in %.0f s (%s/s)",
		humanize.Comma(at.Items), humanize.Comma(at.AllItems),
		humanize.IBytes(uint64(at.Bytes)), humanize.IBytes(uint64(at.AllBytes)),
		100*float64(at.Bytes)/float64(max(at.AllBytes, 1)),
		took.Seconds(), humanize.IBytes(uint64(rate)))
	if rate > 0 {
		text += fmt.Sprintf(", %.0f s left", float64(at.AllBytes-at.Bytes)/rate)
	}
	return text
}

// end removes the bar from the terminal.
func (p *stageProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
