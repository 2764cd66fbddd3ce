package stage

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/staging/posix"
	"rankpool/staging/storage"
)

// Run stages; all ranks of peers call it, each with its own destination, and otherwise with the
// same options. It returns the same report on all ranks. Items that could not be staged are in the
// report; they are not an error of Run.
//
// Errors are one sentence about what ended it early: the source cannot be walked, a destination
// cannot be written to any more (*posix.DestinationError), two ranks of a replication have the same
// destination, a rank fell silent, ctx's cause. An error of another rank begins with that rank's
// number. What was staged by then stays, and is counted in the report.
//
// peers must not be used for anything else, before or after, except to be closed.
func Run(ctx context.Context, peers transport.Transport, opt Options) (*Report, error) {
	if !filepath.IsAbs(opt.Dest) {
		panic(fmt.Sprintf("stage: the destination must be an absolute path, not %q", opt.Dest))
	}
	// ends when the other ranks are gone
	life, die := context.WithCancelCause(context.WithoutCancel(ctx))
	defer die(nil)
	staging, abort := context.WithCancelCause(life)
	defer abort(nil)
	defer context.AfterFunc(ctx, func() { abort(context.Cause(ctx)) })()
	s := &session{opt: opt.defaults(), begin: time.Now(), life: life, die: die}
	s.last = make([]Progress, peers.Size())
	s.t = newTransfer(staging, s.opt)
	s.g = newGroup(peers, abort)
	s.t.g = s.g
	s.g.Handle(kindHead, s.t.announced)
	s.g.Handle(kindTaken, s.t.taken)
	defer s.watch().Stop()
	err := s.stage(staging)
	if _, other := errors.AsType[abortError](err); err != nil && !other {
		s.g.abortAll(err)
	}
	report, lost := s.conclude(err)
	if s.dest != nil {
		s.dest.close()
	}
	// another rank may have failed in its last steps, and sent its error before its report
	err = cmp.Or(err, context.Cause(staging), lost)
	// rather than the error of another rank that was also stopped
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return report, err
}

// A session is one run of staging on a rank.
type session struct {
	opt   *Options
	g     *group
	t     *transfer
	begin time.Time
	life  context.Context
	die   context.CancelCauseFunc

	plan      *Plan
	dest      *destination
	owned     set
	need      set
	needBytes int64
	extra     []Failure // of folders and links

	stale  []string // copies that do not belong to this partition
	pruned int64

	allItems, allBytes atomic.Int64 // to be copied by all ranks

	mu   sync.Mutex
	last []Progress // what each rank had done at its last sign of life
}

// A call is rank 0's first message to the others.
type call struct {
	Run  string
	Plan *Plan
}

// shortfall is a rank's list of what it is missing.
type shortfall struct {
	Need   set
	Bytes  int64
	Folder string // destination.id
}

// stage does everything but the end.
func (s *session) stage(ctx context.Context) error {
	if err := s.survey(ctx); err != nil {
		return err
	}
	failed, err := s.dest.prepare()
	s.extra = failed
	if err != nil {
		return err
	}
	shortfalls, err := s.exchange(ctx)
	if err != nil {
		return err
	}
	if err := s.alone(shortfalls); err != nil {
		return err
	}
	if err := s.sweep(ctx, shortfalls); err != nil {
		return err
	}
	if err := s.dest.room(s.needBytes); err != nil {
		return err
	}
	if err := s.transfer(shortfalls); err != nil {
		return err
	}
	if err := s.placeLinks(ctx); err != nil {
		return err
	}
	if err := ranks.Barrier(ctx, s.g.Mux, kindDone); err != nil {
		return err
	}
	s.extra = append(s.extra, s.dest.settle()...)
	return s.makeDurable()
}

// transfer copies the files.
func (s *session) transfer(shortfalls []shortfall) error {
	needs := make([]set, len(shortfalls))
	for rank, l := range shortfalls {
		needs[rank] = l.Need
	}
	share := readers(s.plan, needs, s.g.Rank())
	s.t.plan, s.t.dest, s.t.need = s.plan, s.dest, s.need
	s.t.source = newTree(s.plan.Root, s.opt.sourceFault)
	defer s.t.source.close()
	s.t.chainOf = func(item int) []int32 { return chain(needs, item, s.g.Rank()) }
	s.t.limit = storage.NewRateLimit(s.opt.MaxBytesPerSecond*share.bytesShare,
		s.opt.MaxOpensPerSecond*share.opensShare)
	return s.t.run(share)
}

// survey gets the plan, and finds out what this rank already has of it.
func (s *session) survey(ctx context.Context) error {
	var c call
	if s.g.Rank() == 0 {
		plan, err := s.opt.Plan(ctx)
		if err != nil {
			return err
		}
		id := make([]byte, 6)
		_, _ = rand.Read(id) // never fails, as documented
		c = call{hex.EncodeToString(id), plan}
	}
	if err := ranks.Spread(ctx, s.g.Mux, kindPlan, &c); err != nil {
		return err
	}
	s.plan = c.Plan
	s.dest = &destination{
		tree: newTree(s.opt.Dest, s.opt.destFault), run: c.Run, rank: s.g.Rank(), plan: c.Plan,
	}
	s.owned = owned(c.Plan, s.opt.Mode, s.g.Rank(), s.g.Size())
	s.need, s.needBytes = s.dest.survey(s.owned, s.opt.Checksum)
	return nil
}

// exchange distributes what each rank is missing to all ranks.
func (s *session) exchange(ctx context.Context) ([]shortfall, error) {
	all, err := ranks.Gather(ctx, s.g.Mux, kindNeed,
		shortfall{s.need, s.needBytes, s.dest.id})
	if err != nil {
		return nil, err
	}
	if err := ranks.Spread(ctx, s.g.Mux, kindNeeds, &all); err != nil {
		return nil, err
	}
	for _, l := range all {
		s.allItems.Add(l.Need.count())
		s.allBytes.Add(l.Bytes)
	}
	return all, nil
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
		err := s.dest.link(i, item)
		s.t.stats.settled.Add(1)
		if err == nil {
			s.t.stats.copied.Add(1)
			continue
		}
		s.t.fail(item, err)
		if posix.IsFatal(err) {
			return cannotWrite(s.dest.root, err)
		}
	}
	return nil
}

func (s *session) makeDurable() error {
	err := s.dest.journal.close()
	if err == nil && s.t.stats.copied.Load() > 0 {
		err = s.dest.sync()
	}
	if err != nil {
		return cannotWrite(s.dest.root, err)
	}
	return nil
}

// conclude merges the ranks' reports. It returns an error if rank 0 or other ranks are gone.
func (s *session) conclude(err error) (*Report, error) {
	own := s.ownReport(err)
	all, lost := ranks.Gather(s.life, s.g.Mux, kindReport, own)
	report := &Report{}
	if lost == nil && s.g.Rank() == 0 {
		report = s.total(all)
	}
	if lost == nil {
		lost = ranks.Spread(s.life, s.g.Mux, kindEnd, report)
	}
	if lost != nil {
		report = s.total([]RankReport{own})
	}
	report.Seconds = time.Since(s.begin).Seconds()
	return report, lost
}

// ownReport counts this rank's items. After an error, files that were not reached have failed.
func (s *session) ownReport(err error) RankReport {
	stats := &s.t.stats
	r := RankReport{
		Rank: s.g.Rank(), Host: s.opt.Host, Dest: s.opt.Dest,
		Counts: Counts{
			Copied: stats.copied.Load(), Failed: stats.failed.Load() + int64(len(s.extra)),
			Bytes: stats.bytes.Load(), StorageReads: stats.storageReads.Load(),
			StorageBytes: stats.storageBytes.Load(), Stale: int64(len(s.stale)), Pruned: s.pruned,
		},
		StalePaths: s.stale[:min(len(s.stale), shownStale)],
	}
	s.t.mu.Lock()
	r.Failures = append(slices.Clone(s.t.failures), s.extra...)
	s.t.mu.Unlock()
	if s.need == nil {
		return r
	}
	lacking := s.need.count()
	r.Skipped = s.owned.count() - lacking
	if err == nil {
		return r
	}
	r.Failed += lacking - stats.settled.Load()
	failed := map[string]bool{}
	for _, f := range r.Failures {
		failed[f.Path] = true
	}
	for i := range s.plan.Items {
		item := &s.plan.Items[i]
		if s.need.has(i) && !failed[item.Path] && !s.dest.isCurrent(item, false) {
			r.Failures = append(r.Failures, Failure{item.Path, r.Rank, "was not reached"})
		}
	}
	return r
}

// total adds up the ranks' reports.
func (s *session) total(all []RankReport) *Report {
	sum := &Report{Mode: s.opt.Mode, Ranks: all}
	for i := range all {
		r := &all[i]
		sum.add(&r.Counts)
		sum.StalePaths = append(sum.StalePaths, r.StalePaths...)
		sum.Failures = append(sum.Failures, r.Failures...)
		r.Failures, r.StalePaths = nil, nil
	}
	if s.plan != nil {
		sum.SourceFolder = s.plan.Root
		sum.Failed += int64(len(s.plan.Failed))
		sum.Failures = append(sum.Failures, s.plan.Failed...)
		for i := range s.plan.Items {
			if s.plan.Items[i].Kind != Folder {
				sum.TotalItems++
			}
			if s.plan.Items[i].Kind == Regular {
				sum.TotalBytes += s.plan.Items[i].Size
			}
		}
	}
	slices.SortStableFunc(sum.Failures, func(a, b Failure) int { return cmp.Compare(a.Path, b.Path) })
	sum.Failures = slices.CompactFunc(sum.Failures,
		func(a, b Failure) bool { return a.Path == b.Path })
	return sum
}
