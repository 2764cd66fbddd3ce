package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"rankpool/mpicache/door"
	"rankpool/scheduler"
	"rankpool/staging/dataset"
	"rankpool/staging/stage"
)

// Mode is the name of this kind of staging: stage --mode pool.
const Mode = "pool"

// These limits bound one request to a rank, which is answered when all of its samples are staged.
// Training that begins meanwhile waits for the answer: 128 MiB take 0.1 s to 5 s.
const (
	chunkSamples = 2048
	chunkBytes   = 128 << 20
)

// A Report is the result of all ranks.
type Report struct {
	Copied     int64   `json:"copied"`
	Skipped    int64   `json:"skipped"`
	Failed     int64   `json:"failed"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	Mode       string  `json:"mode"`
	NoRoom     int64   `json:"no_room"`
	Ranks      []*Rank `json:"ranks"`
	FailedList string  `json:"failed_list"`
	TotalItems int64   `json:"total_items"` // of the part, what the ranks here own
	TotalBytes int64   `json:"total_bytes"`
	Session    string  `json:"session"`
}

// Fill has all ranks read those of the samples that they own, each at its own pace. Update is
// called after each request, by one goroutine at a time.
func (s Search) Fill(
	ctx context.Context, ranks []*Rank, m *dataset.Manifest, ids []int,
	update func(stage.Progress),
) (*Report, error) {
	begin := time.Now()
	report := &Report{Mode: Mode, Ranks: ranks, Session: s.Session}
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
	var mu sync.Mutex
	at := stage.Progress{AllItems: report.TotalItems, AllBytes: report.TotalBytes}
	done := func(items, bytes int64) {
		mu.Lock()
		defer mu.Unlock()
		at.Items, at.Bytes = at.Items+items, at.Bytes+bytes
		update(at)
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
func (r *Rank) fill(
	ctx context.Context, m *dataset.Manifest, ids []scheduler.SampleID,
	done func(items, bytes int64),
) error {
	for len(ids) > 0 {
		n := chunk(m, ids)
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

// chunk returns how many of ids, at least one, go into one request.
func chunk(m *dataset.Manifest, ids []scheduler.SampleID) int {
	bytes := int64(0)
	for n, id := range ids[:min(len(ids), chunkSamples)] {
		if bytes += m.Size(id); bytes > chunkBytes && n > 0 {
			return n
		}
	}
	return min(len(ids), chunkSamples)
}

// add counts a reply.
func (r *Rank) add(w door.Warmed, m *dataset.Manifest) {
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

// Failures returns the samples that could not be read, with the reasons.
func (r *Report) Failures() (all []stage.Failure) {
	for _, rank := range r.Ranks {
		all = append(all, rank.failures...)
	}
	return all
}

// Print prints the summary, then a line for each rank.
func (r *Report) Print(w io.Writer) error {
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
