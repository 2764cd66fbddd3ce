package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"rankpool/cmd/rankpool/internal/memory"
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
		rate = fmt.Sprintf(" (%s/s)", memory.Text(int64(float64(r.Bytes)/r.Seconds)))
	}
	fmt.Fprintf(w, "items:    %s (%s)\n%s %s\nskipped:  %s\nfailed:   %s\nbytes:    %s%s\n"+
		"read:     %s files, %s\nseconds:  %.2f\n",
		humanize.Comma(r.TotalItems), memory.Text(r.TotalBytes), copied, humanize.Comma(r.Copied),
		humanize.Comma(r.Skipped), humanize.Comma(r.Failed), memory.Text(r.Bytes), rate,
		humanize.Comma(r.StorageReads), memory.Text(r.StorageBytes), r.Seconds)
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
			humanize.Comma(rank.Copied+rank.Skipped), memory.Text(rank.Bytes),
			memory.Text(rank.StorageBytes), rank.Dest)
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
		fmt.Fprintf(table, "%s\t%s\t%.2f\n", name, memory.Text(targets[name]),
			float64(targets[name])/max(mean, 1))
	}
	return table.Flush()
}

// stagingLine is one progress line. found is how many items the walk has found.
func stagingLine(at stage.Progress, found int64, seconds float64) string {
	if at.AllItems == 0 {
		return fmt.Sprintf("found %s items in %.0f s", humanize.Comma(found), seconds)
	}
	text := fmt.Sprintf("staged %s of %s items, %s", humanize.Comma(at.Items),
		humanize.Comma(at.AllItems), doneText(at.Bytes, at.AllBytes, seconds))
	if rate := float64(at.Bytes) / seconds; rate > 0 {
		text += fmt.Sprintf(", %.0f s left", float64(at.AllBytes-at.Bytes)/rate)
	}
	return text
}
