package mpicache

import "rankpool/scheduler"

// Kept keeps copies of samples on a disk of the node beyond the end of this rank. Package
// staging/tier/keep implements it. None of its methods waits for the disk. Copies may be lost at
// any time, but a copy that is read has the bytes that storage returned.
type Kept interface {
	// Read reads the sample into into, which has its size, and calls done once, from any goroutine.
	// An error leaves into unchanged. It returns false, and does nothing, if there is no copy.
	Read(id scheduler.SampleID, into []byte, done func(error)) bool
	// Write makes a copy of the sample, as storage returned it, if there is room. The caller may reuse
	// bytes when it returns.
	Write(id scheduler.SampleID, bytes []byte)
}

// read reads a sample into its place.
func (s *samples) read(id scheduler.SampleID, need uint64, done func(kept bool, err error)) {
	s.readInto(id, s.bytes(id), need, done)
}

// readInto reads a sample from its kept copy, or else from storage, and then keeps a copy.
func (s *samples) readInto(
	id scheduler.SampleID, into []byte, need uint64, done func(kept bool, err error),
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
