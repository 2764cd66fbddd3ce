package stager

import (
	"rankpool/scheduler/draw"
)

// tier is the second place of a rank's own samples, on a disk of the node. It stores samples that
// leave memory if they will be drawn sooner than those it has: so it holds the samples that are
// needed next after memory's residents. A sample that returns to memory stays in the tier until
// another one needs its place, so that it need not be rewritten. A nil tier is empty.
type tier struct {
	cache *Cache
	// samples that memory drops once they are no longer needed, and that the tier does not have
	leaving      map[draw.SampleID]Use
	storingBytes int64 // of samples that stay in memory until they are written
	failures     failures
}

// One part in storingShare of the window may be waiting to be written. Samples that leave memory
// while writes are behind are not stored.
const storingShare = 4

// failures counts the failures of a disk, in a row.
type failures int

// failuresMax failures in a row abandon a disk, for the tier or for packages: one that works has
// none.
const failuresMax = 8

func (f *failures) note(err error) {
	if *f++; err == nil {
		*f = 0
	}
}

func newTier(cfg Config) *tier {
	if cfg.TierBytes <= 0 {
		return nil
	}
	block := max(cfg.TierBlockBytes, 1)
	size := func(id draw.SampleID) int64 { return (cfg.Size(id) + block - 1) / block * block }
	return &tier{
		cache:   NewCache(NewClairvoyant(), cfg.TierBytes, size),
		leaving: map[draw.SampleID]Use{},
	}
}

// has reports whether the tier has the sample or is storing it.
func (t *tier) has(id draw.SampleID) bool { return t != nil && t.cache.Resident(id) }

// wants reports whether the tier has the sample or would take it.
func (t *tier) wants(u Use) bool { return t != nil && t.cache.Wants(u) }

// kept records that memory keeps the sample: its place in the tier is reused first.
func (t *tier) kept(id draw.SampleID) {
	if t != nil {
		delete(t.leaving, id)
		t.cache.Refresh(Use{ID: id, Next: goneElsewhere})
	}
}

// left records that memory does not keep a sample, or no longer does.
func (t *tier) left(u Use) {
	switch {
	case t == nil:
	case t.cache.Resident(u.ID):
		t.cache.Refresh(u)
	default:
		t.leaving[u.ID] = u
	}
}

// refreshAll replaces what is known of all samples that memory does not keep; use gets what was
// known of their next draw.
func (t *tier) refreshAll(memory *Cache, use func(id draw.SampleID, next float64) Use) {
	if t == nil {
		return
	}
	t.cache.RefreshAll(func(id draw.SampleID, next float64) Use {
		if memory.Resident(id) {
			return Use{ID: id, Next: goneElsewhere}
		}
		return use(id, next)
	})
	for id, u := range t.leaving {
		t.leaving[id] = use(id, u.Next)
	}
}

// spill writes a sample that leaves memory to the tier, if the tier wants it. It reports whether
// the bytes must stay until then.
func (s *Stager) spill(id draw.SampleID) bool {
	t := s.store.tier
	if t == nil {
		return false
	}
	u, leaving := t.leaving[id]
	delete(t.leaving, id)
	if !leaving {
		return false
	}
	size := s.cfg.Size(id)
	u = s.store.refreshed(id, u.Next)
	if u.Next == goneElsewhere ||
		t.storingBytes > 0 && t.storingBytes+size > s.cfg.WindowBytes/storingShare {
		return false
	}
	if t.cache.Draw(u, func(v draw.SampleID) { s.emit(Erase{v}) }) != Admitted {
		return false
	}
	t.storingBytes += size
	s.emit(Store{id})
	return true
}

func (s *Stager) onStored(e Stored) {
	if t := s.store.tier; t != nil {
		t.storingBytes -= s.cfg.Size(e.ID)
		if (e.Busy || e.Err != nil) && t.has(e.ID) {
			t.cache.Remove(e.ID)
		}
		if !e.Busy {
			s.judge(e.Err)
		}
	}
	s.unpin(e.ID)
}

// onRecalled reads from storage what the tier did not return.
func (s *Stager) onRecalled(e Recalled) {
	if e.Err == nil {
		s.judge(nil)
		s.arrive(e.ID)
		return
	}
	if t := s.store.tier; t.has(e.ID) {
		t.cache.Remove(e.ID)
		s.emit(Erase{e.ID})
	}
	s.judge(e.Err)
	s.fetch(e.ID, s.Demand(), FromFallback)
}

// judge abandons the tier after too many failures.
func (s *Stager) judge(err error) {
	if t := s.store.tier; t != nil {
		if t.failures.note(err); t.failures == failuresMax {
			s.store.tier = nil
			s.emit(EndTier{})
		}
	}
}
