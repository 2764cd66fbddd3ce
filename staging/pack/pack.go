// Package pack writes a data set as tar shards and a manifest, in an order of the caller's choice,
// so that a later job reads it sequentially with few, long reads.
//
// The content of a shard follows from manifest, order and shard size alone (Plan), so any rank
// writes the same bytes. Each shard is written under a temporary name, read back, and renamed; the
// manifest comes last. An interrupted run goes on with the shards that it finished.
package pack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	Order      []draw.SampleID
	ShardBytes int64 // a shard's maximum size; 0: DefaultShardBytes
	// the ranks that share the work; this process is rank 0. nil: it works alone
	Group    *index.Group
	Progress func(Progress) // called with the progress, never by two goroutines at a time

	create func(dir, name string) (output, error) // for tests
}

// Progress is the progress of packing; bytes are those of the shards that are finished.
type Progress struct {
	Shards, AllShards int
	Bytes, AllBytes   int64
}

// A Report describes the pack, and what this run did for it.
type Report struct {
	Samples     int     `json:"samples"`
	SampleBytes int64   `json:"sample_bytes"`
	Shards      int     `json:"shards"`
	Packed      int     `json:"packed"` // shards written by this run
	Kept        int     `json:"kept"`   // shards that existed
	Bytes       int64   `json:"bytes"`  // of the shards that this run wrote
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
// existing shards are read, and kept if they are intact. The manifest is removed first
// and written last, so a pack that has a manifest is complete.
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

	lock     *os.File
	modTimes []int64  // of shards
	sums     []uint64 // of samples, in order
}

func (r *packing) run(ctx context.Context) error {
	lock, done, err := claim(r.opt.Dest, r.plan)
	if err != nil {
		return err
	}
	defer lock.Close()
	r.lock = lock
	own := newWorker(r.plan, r.opt.Dest, r.opt.create)
	defer own.close()
	c := crew{r.opt.Group, own}
	err = c.configure(ctx, setup{
		Order: r.opt.Order, ShardBytes: r.opt.ShardBytes, Dest: r.opt.Dest,
	})
	if err == nil {
		err = c.each(ctx, done, r.place)
	}
	if err != nil {
		return err
	}
	m, err := r.plan.built(r.opt.Dest, r.modTimes, r.sums)
	if err != nil {
		return err
	}
	if err := dataset.WriteParquet(r.report.Manifest, m); err != nil {
		return cannotWrite(r.opt.Dest, err)
	}
	return nil
}

// place handles the result for a shard.
func (r *packing) place(t task, got result) error {
	from, _ := r.plan.span(t.Shard)
	copy(r.sums[from:], got.Sums)
	r.modTimes[t.Shard] = got.ModTime
	if got.Kept {
		r.report.Kept++
		r.report.KeptBytes += r.plan.Bytes(t.Shard)
	} else {
		r.report.Packed++
		r.report.Bytes += r.plan.Bytes(t.Shard)
		if _, err := fmt.Fprintf(r.lock, "\n"+doneLine, t.Shard, got.sum()); err != nil {
			return cannotWrite(r.opt.Dest, err)
		}
	}
	if r.opt.Progress != nil {
		r.opt.Progress(Progress{
			Shards: r.report.Kept + r.report.Packed, AllShards: r.plan.Shards(),
			Bytes: r.report.KeptBytes + r.report.Bytes, AllBytes: r.plan.TotalBytes(),
		})
	}
	return nil
}
