// Package pack writes a data set as tar shards and a manifest, in an order of the caller's choice,
// so that a later job reads it sequentially with few, long reads.
//
// The content of a shard follows from manifest, order and shard size alone (Plan), so any rank
// writes the same bytes. Each shard is written under a temporary name, read back by the readers
// that training uses, and renamed; the manifest comes last. An interrupted run resumes from a
// journal.
package pack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
)

// DefaultShardBytes is the default size of a shard: at a billion bytes a second a shard is read in
// a quarter of a second, far longer than it takes to open it, and a data set of 150 GB has 600.
const DefaultShardBytes = 256 << 20

// Options configures packing. Dest is required; the zero value of the others is a default.
type Options struct {
	Dest string // absolute path of the folder for the shards, visible to all ranks
	// the samples in packing order; nil: all, in manifest order
	Order       []draw.SampleID
	ShardBytes  int64 // a shard's maximum size; 0: DefaultShardBytes
	Concurrency int   // each rank's reads in flight; 0: adaptive
	// the ranks that share the work; this process is rank 0. nil: it works alone
	Group    *index.Group
	Progress func(Progress) // called with the progress, never by two goroutines at a time

	create func(dir, name string) (output, error) // for tests
}

// Progress is the progress of packing; bytes are those of shards. Another rank's work counts when
// its shard is finished.
type Progress struct {
	Shards, AllShards int
	Bytes, AllBytes   int64
}

// A Report describes the pack, and what this run did for it.
type Report struct {
	Samples     int     `json:"samples"`
	SampleBytes int64   `json:"sample_bytes"`
	Shards      int     `json:"shards"`
	Packed      int     `json:"packed"` // shards written by this run; in a dry run: to be written
	Kept        int     `json:"kept"`   // shards that existed
	Bytes       int64   `json:"bytes"`  // of the shards that this run wrote, or would write
	KeptBytes   int64   `json:"kept_bytes"`
	Seconds     float64 `json:"seconds"`
	Ranks       int     `json:"ranks"`
	Manifest    string  `json:"manifest"` // its path
}

// Run packs samples of m into opt.Dest, as the shards of a Plan and the manifest
// index.ManifestName. The other ranks of opt.Group must be in Serve; Run does not dismiss them. The
// same arguments give the same shards, whatever the number of ranks.
//
// The folder is new, empty except for hidden names, or holds a pack that the same arguments began:
// existing shards are read, and kept if they are intact. The manifest is written last, and removed
// before a shard is written again, so a pack that has a manifest is complete.
//
// Errors, one sentence each: those of NewPlan; a *storage.SampleError for a sample that cannot be
// read, or has changed since m was made; a *posix.DestinationError; a folder that holds something
// else, or that another process packs into; a shard that reads back differently from what was
// written; an error of another rank, which is named; ctx's cause.
func Run(ctx context.Context, m *dataset.Manifest, opt Options) (*Report, error) {
	if !filepath.IsAbs(opt.Dest) {
		panic(fmt.Sprintf("pack: the destination must be an absolute path, not %q", opt.Dest))
	}
	begin := time.Now()
	opt.Dest = filepath.Clean(opt.Dest)
	if opt.ShardBytes <= 0 {
		opt.ShardBytes = DefaultShardBytes
	}
	if opt.Order == nil {
		opt.Order = AsIs(m.Len())
	}
	p, err := NewPlan(m, opt.Order, opt.ShardBytes)
	if err != nil {
		return nil, err
	}
	r := &packing{
		plan: p, opt: opt, modTimes: make([]int64, p.Shards()),
		sums: make([]uint64, p.Len()),
	}
	r.report = Report{
		Samples: p.Len(), Shards: p.Shards(), Ranks: opt.Group.Size(),
		Manifest: filepath.Join(opt.Dest, index.ManifestName),
	}
	for place := range p.Len() {
		r.report.SampleBytes += p.size(place)
	}
	err = r.run(ctx)
	r.report.Seconds = time.Since(begin).Seconds()
	return &r.report, err
}

// packing is one call of Run.
type packing struct {
	plan   *Plan
	opt    Options
	report Report

	journal  *journal
	crew     crew
	modTimes []int64  // of shards
	sums     []uint64 // of samples, in order

	bytes, shards atomic.Int64
	reporting     sync.Mutex // held while progress is reported
}

// count counts a shard in the report.
func (r *packing) count(shard int, kept bool) {
	if kept {
		r.report.Kept++
		r.report.KeptBytes += r.plan.Bytes(shard)
		return
	}
	r.report.Packed++
	r.report.Bytes += r.plan.Bytes(shard)
}

func (r *packing) run(ctx context.Context) error {
	journal, begun, err := openJournal(r.opt.Dest, r.plan)
	if err != nil {
		return err
	}
	defer journal.file.Close()
	r.journal = journal
	if err := prepare(r.opt.Dest, begun); err != nil {
		if !begun { // leave nothing in a folder that is not ours
			_ = os.Remove(r.journal.file.Name())
		}
		return err
	}
	if !begun {
		if err := r.journal.begin(r.plan); err != nil {
			return cannotWrite(r.opt.Dest, err)
		}
	}
	own := newWorker(r.plan, r.opt.Dest, r.opt.Concurrency, r.opt.create)
	defer own.close()
	own.wrote = func(bytes int64) { r.progress(0, bytes) }
	r.crew = crew{r.opt.Group, own}
	err = r.crew.configure(ctx, setup{
		Order: r.opt.Order, ShardBytes: r.opt.ShardBytes, Dest: r.opt.Dest,
		Concurrency: r.opt.Concurrency,
	})
	if err != nil {
		return err
	}
	return r.pack(ctx)
}

// pack checks the shards in the journal, writes the others, and then the manifest.
func (r *packing) pack(ctx context.Context) error {
	var known, missing []task
	for shard := range r.plan.Shards() {
		if sums, found := r.journal.sums[shard]; found {
			known = append(known, task{shard, sums})
		} else {
			missing = append(missing, task{Shard: shard})
		}
	}
	err := r.crew.each(ctx, known, func(_ int, t task, got result) error {
		if got.Sums == nil {
			missing = append(missing, task{Shard: t.Shard})
			return nil
		}
		r.place(t.Shard, got, true)
		r.progress(1, r.plan.Bytes(t.Shard))
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(missing, func(a, b task) int { return a.Shard - b.Shard })
	if len(missing) > 0 {
		if err := r.write(ctx, missing); err != nil {
			return err
		}
	}
	m, err := r.plan.built(r.opt.Dest, 0, r.plan.Shards(), r.plan.Name, r.modTimes, r.sums)
	if err != nil {
		return err
	}
	if err := dataset.WriteParquet(r.report.Manifest, m); err != nil {
		return cannotWrite(r.opt.Dest, err)
	}
	return nil
}

// write writes shards, and flushes them.
func (r *packing) write(ctx context.Context, missing []task) error {
	// From now on the pack is incomplete.
	if err := remove(r.opt.Dest, index.ManifestName); err != nil {
		return err
	}
	err := r.crew.each(ctx, missing, func(rank int, t task, got result) error {
		r.place(t.Shard, got, false)
		if err := r.journal.add(t.Shard, got.Sums); err != nil {
			return cannotWrite(r.opt.Dest, err)
		}
		if rank == 0 {
			r.progress(1, 0) // the bytes were reported when they were written
		} else {
			r.progress(1, r.plan.Bytes(t.Shard))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.crew.syncAll(ctx)
}

// place handles the result for a shard.
func (r *packing) place(shard int, got result, kept bool) {
	from, _ := r.plan.span(shard)
	copy(r.sums[from:], got.Sums)
	r.modTimes[shard] = got.ModTime
	r.count(shard, kept)
}

// progress reports progress, unless another goroutine is doing so.
func (r *packing) progress(shards, bytes int64) {
	at := Progress{
		Shards: int(r.shards.Add(shards)), AllShards: r.plan.Shards(),
		Bytes: r.bytes.Add(bytes), AllBytes: r.plan.TotalBytes(),
	}
	if r.opt.Progress != nil && r.reporting.TryLock() {
		defer r.reporting.Unlock()
		r.opt.Progress(at)
	}
}
