package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
)

// Run stages; all ranks of peers call it, each with its own destination, and otherwise with the
// same options. It returns the same report on all ranks. Files that could not be read are in the
// report; they are not an error of Run.
//
// Errors are one sentence about what ended it early: the source cannot be walked, a destination
// cannot be written to (*posix.DestinationError), two ranks of a replication have the same
// destination, a rank fell silent, ctx's cause. An error of another rank begins with that rank's
// number. What was staged by then stays.
//
// peers must not be used for anything else, before or after, except to be closed.
func Run(ctx context.Context, peers transport.Transport, opt Options) (*Report, error) {
	if !filepath.IsAbs(opt.Dest) {
		panic(fmt.Sprintf("stage: the destination must be an absolute path, not %q", opt.Dest))
	}
	staging, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	s := &session{opt: opt.defaults(), bytes: make([]int64, peers.Size())}
	s.t = newTransfer(staging, s.opt)
	s.g = newGroup(peers, abort)
	s.t.g = s.g
	s.g.Handle(kindHead, s.t.announced)
	s.g.Handle(kindTaken, s.t.taken)
	defer s.watch().Stop()
	begin := time.Now()
	report, err := s.stage(staging)
	if s.dest != nil {
		s.dest.close()
	}
	if err != nil {
		if _, other := errors.AsType[abortError](err); !other {
			s.g.abortAll(err)
		}
		// rather than the error of another rank that was also stopped
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	report.Seconds = time.Since(begin).Seconds()
	return report, nil
}

// A session is one run of staging on a rank.
type session struct {
	opt *Options
	g   *group
	t   *transfer

	plan      *Plan
	dest      *destination
	owned     set
	need      set
	needBytes int64

	stale  []string // copies that do not belong to this partition
	pruned int64

	allBytes atomic.Int64 // to be copied by all ranks
	mu       sync.Mutex
	bytes    []int64 // that each rank had copied at its last sign of life
}

// shortfall is a rank's list of what it is missing.
type shortfall struct {
	Need   set
	Bytes  int64
	Folder string // destination.id
}

// stage does everything, and returns the report.
func (s *session) stage(ctx context.Context) (*Report, error) {
	if err := s.survey(ctx); err != nil {
		return nil, err
	}
	if err := s.dest.prepare(); err != nil {
		return nil, err
	}
	shortfalls, err := s.exchange(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.alone(shortfalls); err != nil {
		return nil, err
	}
	if err := s.sweep(ctx, shortfalls); err != nil {
		return nil, err
	}
	if err := s.dest.room(s.needBytes); err != nil {
		return nil, err
	}
	if err := s.transfer(ctx, shortfalls); err != nil {
		return nil, err
	}
	if err := ranks.Barrier(ctx, s.g.Mux, kindDone); err != nil {
		return nil, err
	}
	if err := s.dest.settle(s.t.stats.copied.Load() > 0); err != nil {
		return nil, err
	}
	return s.report(ctx)
}

// transfer copies the files and links.
func (s *session) transfer(ctx context.Context, shortfalls []shortfall) error {
	needs := make([]set, len(shortfalls))
	for rank, l := range shortfalls {
		needs[rank] = l.Need
	}
	share := readers(s.plan, needs, s.g.Rank())
	s.t.plan, s.t.dest, s.t.need = s.plan, s.dest, s.need
	s.t.source = newTree(s.plan.Root, s.opt.sourceFault)
	defer s.t.source.close()
	s.t.chainOf = func(item int) []int32 { return chain(needs, item, s.g.Rank()) }
	s.t.byteLimit = limit(s.opt.MaxBytesPerSecond*share.bytesShare, s.opt.ChunkBytes)
	s.t.openLimit = limit(s.opt.MaxOpensPerSecond*share.opensShare, 1)
	if err := s.dest.mkdir(s.dest.temp); err != nil {
		return s.dest.cannotWrite(err)
	}
	defer func() {
		_ = os.RemoveAll(s.dest.path(s.dest.temp)) // if this fails, the next run does it
	}()
	if err := s.t.run(share); err != nil {
		return err
	}
	return s.placeLinks(ctx)
}

// limit returns a limit per second, of which a tenth may be used at once, and one request of most.
func limit(perSecond float64, most int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(most, int(perSecond/10)))
}

// survey gets the plan, and finds out what this rank already has of it.
func (s *session) survey(ctx context.Context) (err error) {
	s.plan = &Plan{}
	if s.g.Rank() == 0 {
		if s.plan, err = s.opt.Plan(ctx); err != nil {
			return err
		}
	}
	if err := ranks.Spread(ctx, s.g.Mux, kindPlan, s.plan); err != nil {
		return err
	}
	s.dest = newDestination(s.opt.Dest, s.g.Rank(), s.plan, s.opt.destFault)
	s.owned = owned(s.plan, s.opt.Mode, s.g.Rank(), s.g.Size())
	s.need, s.needBytes = s.dest.survey(s.owned, s.opt.Checksum)
	return nil
}

// exchange distributes what each rank is missing to all ranks.
func (s *session) exchange(ctx context.Context) ([]shortfall, error) {
	all, err := ranks.Share(ctx, s.g.Mux, kindNeed, shortfall{s.need, s.needBytes, s.dest.id})
	for _, l := range all {
		s.allBytes.Add(l.Bytes)
	}
	return all, err
}

// alone makes sure that no two ranks write the same replica.
func (s *session) alone(shortfalls []shortfall) error {
	if s.opt.Mode != Replicate || s.dest.id == "" {
		return nil
	}
	for rank, l := range shortfalls {
		if rank != s.g.Rank() && l.Folder == s.dest.id {
			return fmt.Errorf("stage: rank %d writes to %s too: give every rank its own folder with "+
				"{rank} or {host} in --dest, as in --dest %s/{rank}", rank, s.dest.root, s.dest.root)
		}
	}
	return nil
}

// placeLinks creates the symbolic links.
func (s *session) placeLinks(ctx context.Context) error {
	for i := range s.plan.Items {
		item := &s.plan.Items[i]
		if item.Kind != Symlink || !s.need.has(i) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.dest.link(i, item); err != nil {
			return s.dest.cannotWrite(err)
		}
		s.t.stats.copied.Add(1)
	}
	return nil
}

// report merges the ranks' reports.
func (s *session) report(ctx context.Context) (*Report, error) {
	stats := &s.t.stats
	own := RankReport{
		Rank: s.g.Rank(), Host: s.opt.Host, Dest: s.opt.Dest,
		Counts: Counts{
			Copied: stats.copied.Load(), Skipped: s.owned.count() - s.need.count(),
			Failed: int64(len(s.t.failures)), Bytes: stats.bytes.Load(),
			StorageReads: stats.storageReads.Load(), StorageBytes: stats.storageBytes.Load(),
			Stale: int64(len(s.stale)), Pruned: s.pruned,
		},
		StalePaths: s.stale[:min(len(s.stale), shownStale)],
		Failures:   s.t.failures,
	}
	all, err := ranks.Share(ctx, s.g.Mux, kindReport, own)
	return s.total(all), err
}

// total adds up the ranks' reports.
func (s *session) total(all []RankReport) *Report {
	sum := &Report{Mode: s.opt.Mode, Ranks: all, SourceFolder: s.plan.Root}
	for i := range all {
		r := &all[i]
		sum.add(&r.Counts)
		sum.StalePaths = append(sum.StalePaths, r.StalePaths...)
		sum.Failures = append(sum.Failures, r.Failures...)
		r.Failures, r.StalePaths = nil, nil
	}
	sum.Failed += int64(len(s.plan.Failed))
	sum.Failures = append(sum.Failures, s.plan.Failed...)
	for i := range s.plan.Items {
		if s.plan.Items[i].Kind != Folder {
			sum.TotalItems++
		}
		sum.TotalBytes += s.plan.Items[i].Size
	}
	slices.SortStableFunc(sum.Failures, func(a, b Failure) int { return cmp.Compare(a.Path, b.Path) })
	sum.Failures = slices.CompactFunc(sum.Failures,
		func(a, b Failure) bool { return a.Path == b.Path })
	return sum
}
