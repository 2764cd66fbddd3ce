// Package stage is the batch stager: it copies a data set, or a part of it, from storage to a
// folder on every rank.
//
// One rank walks the source and sends the plan to the others; each rank compares it with what it
// has; then each file that any rank is missing is read from storage once, by one rank, and passed
// in chunks along the chain of the ranks that miss it, while every rank writes it under a temporary
// name. A file is then read back, compared with the checksum of what was read, and renamed: no file
// of the final tree is ever incomplete.
package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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
	s := &session{
		opt: opt.defaults(), mux: ranks.NewMux(peers), abort: abort,
		bytes: make([]atomic.Int64, peers.Size()),
	}
	s.mux.Handle(kindAbort, s.aborted)
	defer s.watch().Stop()
	begin := time.Now()
	report, err := s.stage(staging)
	if s.dest != nil {
		s.dest.close()
	}
	if err != nil {
		if _, other := errors.AsType[abortError](err); !other {
			s.abortAll(err)
		}
		// rather than the error of another rank that was also stopped
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	report.Seconds = time.Since(begin).Seconds()
	return report, nil
}

// A session is one run of staging on a rank.
type session struct {
	opt   *Options
	mux   *ranks.Mux
	abort context.CancelCauseFunc // ends staging on this rank

	plan       *Plan
	dest       *destination
	owned      set
	own        shortfall
	shortfalls []shortfall // of all ranks

	stale    []string // copies that do not belong to this partition
	counts   Counts   // atomic during the transfer
	failures []Failure

	allBytes atomic.Int64   // to be copied by all ranks
	bytes    []atomic.Int64 // that each rank had copied at its last sign of life
}

// shortfall is a rank's list of what it is missing.
type shortfall struct {
	Need   set
	Bytes  int64
	Folder string // destination.id
}

// stage does everything, and returns the report.
func (s *session) stage(ctx context.Context) (*Report, error) {
	for _, step := range []func(context.Context) error{
		s.survey, s.exchange, s.sweep, s.transfer, s.placeLinks, s.settle,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s.report(ctx)
}

// transfer copies the files.
func (s *session) transfer(ctx context.Context) error {
	if err := s.dest.room(s.own.Bytes); err != nil {
		return err
	}
	if err := s.dest.mkdir(s.dest.temp); err != nil {
		return s.dest.cannotWrite(err)
	}
	t := newTransfer(ctx, s)
	defer t.source.close()
	return t.run()
}

// settle brings the destination into its final state when no rank writes any more.
func (s *session) settle(ctx context.Context) error {
	if err := ranks.Barrier(ctx, s.mux, kindDone); err != nil {
		return err
	}
	return s.dest.settle(s.counts.Copied > 0)
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
	if s.mux.Rank() == 0 {
		if s.plan, err = s.opt.Plan(ctx); err != nil {
			return err
		}
	}
	if err := ranks.Spread(ctx, s.mux, kindPlan, s.plan); err != nil {
		return err
	}
	s.dest = newDestination(s.opt.Dest, s.mux.Rank(), s.plan, s.opt.destFault)
	s.owned = owned(s.plan, s.opt.Mode, s.mux.Rank(), s.mux.Size())
	s.own.Need, s.own.Bytes = s.dest.survey(s.owned, s.opt.Checksum)
	return s.dest.prepare()
}

// exchange distributes what each rank is missing to all ranks, and makes sure that no two ranks
// write the same replica.
func (s *session) exchange(ctx context.Context) (err error) {
	s.own.Folder = s.dest.id
	s.shortfalls, err = ranks.Share(ctx, s.mux, kindNeed, s.own)
	for rank, l := range s.shortfalls {
		s.allBytes.Add(l.Bytes)
		if rank != s.mux.Rank() && l.Folder == s.dest.id && l.Folder != "" &&
			s.opt.Mode == Replicate {
			return fmt.Errorf("stage: rank %d writes to %s too: give every rank its own folder with "+
				"{rank} or {host} in --dest, as in --dest %s/{rank}", rank, s.dest.root, s.dest.root)
		}
	}
	return err
}

// placeLinks creates the symbolic links.
func (s *session) placeLinks(context.Context) error {
	for i := range s.plan.Items {
		item := &s.plan.Items[i]
		if item.Kind != Symlink || !s.own.Need.has(i) {
			continue
		}
		if err := s.dest.link(i, item); err != nil {
			return s.dest.cannotWrite(err)
		}
		s.counts.Copied++
	}
	return nil
}

// report merges the ranks' reports.
func (s *session) report(ctx context.Context) (*Report, error) {
	s.counts.Skipped = s.owned.count() - s.own.Need.count()
	s.counts.Failed, s.counts.Stale = int64(len(s.failures)), int64(len(s.stale))
	all, err := ranks.Share(ctx, s.mux, kindReport, RankReport{
		Rank: s.mux.Rank(), Host: s.opt.Host, Dest: s.opt.Dest, Counts: s.counts,
		StalePaths: s.stale[:min(len(s.stale), 10)], Failures: s.failures,
	})
	sum := &Report{Mode: s.opt.Mode, Ranks: all, SourceFolder: s.plan.Root}
	for i := range all {
		r := &all[i]
		sum.add(&r.Counts)
		sum.StalePaths = append(sum.StalePaths, r.StalePaths...)
		sum.Failures = append(sum.Failures, r.Failures...)
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
	return sum, err
}
