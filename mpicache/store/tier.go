package store

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// Tier keeps copies of samples on a disk of the node. Package staging/tier implements it. Its
// methods do not wait for the disk; done is called once, later, from any goroutine. A tier may lose
// samples at any time, but returns only the bytes that were stored.
type Tier interface {
	// Store writes the sample, whose bytes stay as they are until done is called. It reports false,
	// and does nothing, when the disk is behind.
	Store(id draw.SampleID, bytes []byte, done func(error)) bool
	// Recall reads the sample into into, which has its size. Smaller needs are read first. After
	// done, into is not written to.
	Recall(id draw.SampleID, into []byte, need uint64, done func(error))
	// Erase frees the sample's room; operations in progress continue.
	Erase(id draw.SampleID)
	// End abandons the disk: operations in progress end with an error.
	End()
}

// store makes the tier write a sample that leaves memory.
func (s *Store) store(c stager.Store) {
	s.reads.Add(1)
	taken := s.data.Tier.Store(c.ID, s.bytes(c.ID), func(err error) {
		s.noteTier("a sample is not written to the tier", c.ID, err)
		s.Locked(func() { s.Step(stager.Stored{ID: c.ID, Err: err}) })
		s.reads.Done()
	})
	if !taken {
		s.reads.Done()
		s.Step(stager.Stored{ID: c.ID, Busy: true})
	}
}

// recall makes the tier read a sample into a new place.
func (s *Store) recall(c stager.Recall) {
	if !s.occupyOrStarve(c.ID) {
		return
	}
	s.reads.Add(1)
	into := s.bytes(c.ID)
	s.data.Tier.Recall(c.ID, into, c.Need, func(err error) {
		sum := s.sumOf(into, err)
		s.noteTier("a sample is not read from the tier", c.ID, err)
		s.Locked(func() {
			if err == nil {
				s.put(c.ID, sum)
			}
			s.Step(stager.Recalled{ID: c.ID, Err: err})
		})
		s.reads.Done()
	})
}

func (s *Store) noteTier(what string, id draw.SampleID, err error) {
	if err == nil {
		return
	}
	s.rank.Log.Debug(what, "data", s.data.Name, "sample", id, "error", err)
	s.Locked(func() {
		if !s.tierOver {
			s.tierErr = err
		}
	})
}

// endTier abandons the tier.
func (s *Store) endTier() {
	s.tierOver = true
	s.rank.Log.Warn("the tier fails repeatedly; training continues without it", "data",
		s.data.Name, "error", s.tierErr)
	s.data.Tier.End()
}

// Kept keeps copies of samples on a disk of the node beyond the end of this rank. Package
// staging/tier/keep implements it. None of its methods waits for the disk. Copies may be lost at
// any time, but a copy that is read has the bytes that storage returned.
type Kept interface {
	// Read reads the sample into into, which has its size, and calls done once, from any goroutine.
	// An error leaves into unchanged. It returns false, and does nothing, if there is no copy.
	Read(id draw.SampleID, into []byte, done func(error)) bool
	// Write makes a copy of the sample, as storage returned it, if there is room. The caller may reuse
	// bytes when it returns.
	Write(id draw.SampleID, bytes []byte)
}

// read reads a sample from its kept copy, or else from storage, and then keeps a copy.
func (s *Store) read(
	id draw.SampleID, into []byte, need uint64, done func(kept bool, err error),
) {
	copies, from := s.data.Kept, s.data.Storage
	storage := func() {
		from.Fetch(id, into, need, func(err error) {
			if err == nil && copies != nil {
				copies.Write(id, into)
			}
			done(false, err)
		})
	}
	if copies == nil || !copies.Read(id, into, func(err error) {
		if err != nil {
			storage()
			return
		}
		done(true, nil)
	}) {
		storage()
	}
}
