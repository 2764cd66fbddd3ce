package stage

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
)

// sweep finds this rank's stale copies, and removes them if asked to. A copy is stale if an earlier
// run staged it from the same source into the plan's folders, and no rank with this destination
// gets it any more. Removing it makes room before anything is copied.
func (s *session) sweep(ctx context.Context) error {
	if s.opt.Mode != Partition {
		return nil
	}
	own := s.dest.id
	all := owners(s.plan, s.mux.Size())
	s.stale = s.dest.stale(ctx, func(i int) bool {
		id := s.shortfalls[all[i]].Folder
		return int(all[i]) == s.mux.Rank() || id == own || id == "" || own == ""
	})
	if !s.opt.Prune {
		return nil
	}
	for _, rel := range s.stale {
		if err := s.dest.remove(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.dest.cannotWrite(err)
		}
		s.counts.Pruned++
	}
	return nil
}

// stale returns the copies in the plan's folders that this program placed there from the plan's
// source, that have not changed since, and for which keep does not return true. Copies whose source
// could not be examined stay.
func (d *destination) stale(ctx context.Context, keep func(i int) bool) (stale []string) {
	failed := map[string]bool{}
	for _, f := range d.plan.Failed {
		failed[f.Path] = true
	}
	for rel := range d.journal.records {
		if ctx.Err() != nil {
			return nil
		}
		k, planned := d.find(rel)
		folder, inPlan := d.find(parent(rel))
		if failed[rel] || planned && d.plan.Items[k].Kind != Folder && keep(k) || !inPlan ||
			d.plan.Items[folder].Kind != Folder || failed[parent(rel)] {
			continue
		}
		i, err := d.look(rel, false, false)
		if r, found := d.journal.find(rel, i); err == nil && found && r.Source == d.plan.source(rel) {
			stale = append(stale, rel)
		}
	}
	slices.Sort(stale)
	return stale
}

// find returns the index of a path in the plan.
func (d *destination) find(rel string) (int, bool) {
	return slices.BinarySearchFunc(d.plan.Items, rel,
		func(item Item, rel string) int { return cmp.Compare(item.Path, rel) })
}
