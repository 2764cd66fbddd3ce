package stage

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// shownStale is how many stale copies of a rank a report names.
const shownStale = 10

// sweep finds this rank's stale copies, and removes them if asked to. A copy is stale if an earlier
// run staged it from the same source into the plan's folders, and no rank with this destination
// gets it any more. Removing it makes room before anything is copied.
func (s *session) sweep(ctx context.Context, shortfalls []shortfall) error {
	if s.opt.Mode != Partition {
		return nil
	}
	keep, all := make([]bool, s.g.Size()), owners(s.plan, s.g.Size())
	for _, rank := range s.sharing(shortfalls) {
		keep[rank] = true
	}
	s.stale = s.dest.stale(ctx, func(i int) bool { return keep[all[i]] })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !s.opt.Prune || s.opt.DryRun {
		return nil
	}
	for _, rel := range s.stale {
		if err := s.dest.fsys.Remove(join(s.dest.root, rel)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return &DestinationError{s.dest.root, err}
		}
		s.pruned++
	}
	return nil
}

// sharing returns the ranks that may have this rank's destination, itself included: those whose
// tokens are there. A dry run writes no tokens, so it returns those whose destination has the same
// name; if a rank could not write its token, it returns all.
func (s *session) sharing(shortfalls []shortfall) []int {
	ranks := []int{s.g.Rank()}
	told := !slices.ContainsFunc(shortfalls, func(l shortfall) bool { return !l.Told })
	others, err := []int(nil), error(nil)
	if told && len(shortfalls) > 1 {
		others, err = s.dest.sharers(len(shortfalls))
	}
	for rank, l := range shortfalls {
		switch {
		case rank == s.g.Rank():
		case s.opt.DryRun:
			if l.Dest == s.opt.Dest {
				ranks = append(ranks, rank)
			}
		case !told || err != nil || slices.Contains(others, rank):
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// stale returns the copies in the plan's folders that this program placed there from the plan's
// source, that have not changed since, and for which keep does not return true. Copies whose source
// could not be examined stay.
func (d *destination) stale(ctx context.Context, keep func(i int) bool) (stale []string) {
	failed := map[string]bool{}
	for _, f := range d.plan.Failed {
		failed[f.Path] = true
	}
	var look func(dir string)
	look = func(dir string) {
		names, err := d.fsys.ReadNames(join(d.root, dir))
		if err != nil || ctx.Err() != nil {
			return
		}
		for _, name := range names {
			rel := strings.TrimPrefix(dir+"/"+name, "/")
			i, planned := d.find(rel)
			if isOurs(dir, name) || failed[rel] || planned && d.plan.Items[i].Kind != Folder && keep(i) {
				continue
			}
			info, err := d.fsys.Lstat(join(d.root, rel))
			switch {
			case err != nil:
			case info.Kind == Folder && planned && d.plan.Items[i].Kind == Folder:
				look(rel)
			case info.Kind == Regular && d.isPlaced(rel, i, planned, info):
				stale = append(stale, rel)
			}
		}
	}
	if _, planned := d.find(""); planned && !failed[""] {
		look("")
	}
	slices.Sort(stale)
	return stale
}

// find returns the index of a path in the plan.
func (d *destination) find(rel string) (int, bool) {
	return slices.BinarySearchFunc(d.plan.Items, rel,
		func(item Item, rel string) int { return cmp.Compare(item.Path, rel) })
}

// isPlaced reports whether the file at rel was placed there by this program from the plan's source,
// and has not changed since.
func (d *destination) isPlaced(rel string, i int, planned bool, info Info) bool {
	first := rel
	if planned && d.plan.Items[i].Kind == HardLink {
		first = d.plan.Items[d.plan.Items[i].Primary].Path
	}
	r, found := d.record(rel, first)
	return found && r.path == recordedPath(d.plan.Root, first) && r.size == info.Size &&
		r.placed == info.ModTime
}
