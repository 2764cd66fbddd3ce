package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rankpool/mpicache/door"
	"rankpool/scheduler"
	"rankpool/staging/dataset"
	"rankpool/staging/stage"
)

// fill has all ranks read their samples, each at its own pace.
func (o *stageOptions) fill(
	ctx context.Context, ranks []*poolRank, m *dataset.Manifest, ids []int,
) (*poolReport, error) {
	begin := time.Now()
	report := &poolReport{Mode: poolMode, Ranks: ranks, Session: o.session}
	shares := make([][]scheduler.SampleID, len(ranks))
	for i, r := range ranks {
		for _, id := range ids {
			if scheduler.Owner(scheduler.SampleID(id), r.ranks) == r.Rank {
				shares[i] = append(shares[i], scheduler.SampleID(id))
				report.TotalItems++
				report.TotalBytes += m.Size(scheduler.SampleID(id))
			}
		}
	}
	show := newStageProgress(os.Stderr, o.quiet, o.progressSeconds)
	defer show.end()
	var mu sync.Mutex
	at := stage.Progress{AllItems: report.TotalItems, AllBytes: report.TotalBytes}
	done := func(items, bytes int64) {
		mu.Lock()
		defer mu.Unlock()
		at.Items, at.Bytes = at.Items+items, at.Bytes+bytes
		show.update(at)
	}
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() { errs[i] = r.fill(ctx, m, shares[i], done) })
	}
	all.Wait()
	for _, r := range ranks {
		report.Copied += r.Copied
		report.Skipped += r.Skipped
		report.NoRoom += r.NoRoom
		report.Failed += r.Failed
		report.Bytes += r.Bytes
	}
	report.Seconds = time.Since(begin).Seconds()
	return report, cmp.Or(errs...) // all ranks report the same
}

// fill has the rank read its samples, request by request, until its memory is full.
func (r *poolRank) fill(
	ctx context.Context, m *dataset.Manifest, ids []scheduler.SampleID,
	done func(items, bytes int64),
) error {
	for len(ids) > 0 {
		n := poolChunk(m, ids)
		w, err := r.client.Warm(ctx, r.stream, ids[:n])
		var refusal door.Error
		if errors.As(err, &refusal) && refusal.Code == door.CodeBegun {
			return fmt.Errorf("rank %d: training has begun, and its plan decides what is in "+
				"memory; stage before training starts", r.Rank)
		}
		if err != nil {
			return fmt.Errorf("rank %d: %w", r.Rank, err)
		}
		r.add(w, m)
		done(int64(n), w.Bytes)
		ids = ids[n:]
		if w.NoRoom > 0 && w.Staged == 0 { // it is full
			r.NoRoom += int64(len(ids))
			return nil
		}
	}
	return nil
}

// poolChunk returns how many of ids, at least one, go into one request.
func poolChunk(m *dataset.Manifest, ids []scheduler.SampleID) int {
	bytes := int64(0)
	for n, id := range ids[:min(len(ids), poolChunkSamples)] {
		if bytes += m.Size(id); bytes > poolChunkBytes && n > 0 {
			return n
		}
	}
	return min(len(ids), poolChunkSamples)
}

// add counts a reply.
func (r *poolRank) add(w door.Warmed, m *dataset.Manifest) {
	r.Copied += int64(w.Staged)
	r.Skipped += int64(w.Here)
	r.NoRoom += int64(w.NoRoom)
	r.Failed += int64(len(w.Failures))
	r.Bytes += w.Bytes
	for _, f := range w.Failures {
		r.failures = append(r.failures,
			stage.Failure{Path: m.RelPath(f.Sample), Rank: r.Rank, Reason: f.Reason})
	}
}

// concludePool prints the list of failures and the summary, and returns the exit code as an error.
func (o *stageOptions) concludePool(cmd *cobra.Command, report *poolReport, err error) error {
	var failures []stage.Failure
	for _, r := range report.Ranks {
		failures = append(failures, r.failures...)
	}
	if o.failed != "" && len(failures) > 0 {
		if failed := os.WriteFile(o.failed, stage.FormatFailures(failures), 0o600); failed != nil {
			err = errors.Join(err, fmt.Errorf("--failed: %w", failed))
		} else {
			report.FailedList = o.failed
		}
	}
	if !o.quiet && (err == nil || o.json) {
		print := printPool
		if o.json {
			print = func(w writer, r *poolReport) error { return json.NewEncoder(w).Encode(r) }
		}
		err = cmp.Or(err, print(cmd.OutOrStdout(), report))
	}
	if err != nil || len(failures) == 0 {
		return err
	}
	return fmt.Errorf("%d samples were not staged, the first is of %q: %s", len(failures),
		failures[0].Path, failures[0].Reason)
}

// printPool prints the summary, then a line a rank.
func printPool(w writer, r *poolReport) error {
	rate := ""
	if r.Seconds > 0 {
		rate = fmt.Sprintf(" (%s/s)", humanize.IBytes(uint64(float64(r.Bytes)/r.Seconds)))
	}
	fmt.Fprintf(w, "items:    %s (%s)\ncopied:   %s\nskipped:  %s\nno room:  %s\n"+
		"failed:   %s\nbytes:    %s%s\nseconds:  %.2f\n",
		humanize.Comma(r.TotalItems), humanize.IBytes(uint64(r.TotalBytes)),
		humanize.Comma(r.Copied), humanize.Comma(r.Skipped),
		humanize.Comma(r.NoRoom), humanize.Comma(r.Failed), humanize.IBytes(uint64(r.Bytes)), rate,
		r.Seconds)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "rank\titems\tbytes\tno room")
	for _, rank := range r.Ranks {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", rank.Rank, humanize.Comma(rank.Copied+rank.Skipped),
			humanize.IBytes(uint64(rank.Bytes)), humanize.Comma(rank.NoRoom))
	}
	return table.Flush()
}

// ordered returns the ids of the part in order of importance: by --top, in the order of the list,
// or in that of the manifest.
func (p *stagePart) ordered(m *dataset.Manifest) ([]int, error) {
	if p.list == "" {
		return p.samples(m)
	}
	part, err := p.readList(m.Root())
	if err != nil {
		return nil, err
	}
	line := map[string]int{}
	for i, file := range part {
		if _, twice := line[file.Path]; !twice {
			line[file.Path] = i
		}
	}
	var ids []int
	of := map[int]int{} // the first line that names a sample's file, or a folder that it is in
	for id := range m.Len() {
		for name := m.RelPath(scheduler.SampleID(id)); ; name = path.Dir(name) {
			if name == "." {
				name = ""
			}
			if at, named := line[name]; named {
				if first, found := of[id]; !found || at < first {
					of[id] = at
				}
			}
			if name == "" {
				break
			}
		}
		if _, found := of[id]; found {
			ids = append(ids, id)
		}
	}
	slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(of[a], of[b]) })
	return ids, nil
}
