package store

import (
	"errors"
	"sync"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// pack writes a package. It copies the samples that are in memory at once, and reads the rest.
func (s *Store) pack(c stager.Pack) {
	bytes := make([]byte, s.packageBytes(c.IDs))
	w := packageWrite{store: s, number: c.Package, bytes: bytes, missing: 1}
	for _, here := range c.Here {
		if !here {
			w.missing++
		}
	}
	s.reads.Add(1)
	for i, id := range c.IDs {
		place := bytes[:s.data.Size(id)]
		bytes = bytes[len(place):]
		if c.Here[i] {
			copy(place, s.bytes(id))
			continue
		}
		s.read(id, place, c.Need, func(_ bool, err error) { w.arrived(err) })
	}
	s.Later(func() { w.arrived(nil) })
}

func (s *Store) packageBytes(ids []draw.SampleID) (bytes int64) {
	for _, id := range ids {
		bytes += s.data.Size(id)
	}
	return bytes
}

// packageWrite is a package whose samples are being read.
type packageWrite struct {
	store  *Store
	number uint32
	bytes  []byte

	mu      sync.Mutex
	missing int // reads, and 1 until all other samples are copied
	err     error
}

// arrived handles the end of a sample's read, and writes the package after the last one.
func (w *packageWrite) arrived(err error) {
	w.mu.Lock()
	w.err = errors.Join(w.err, err)
	w.missing--
	missing, err := w.missing, w.err
	w.mu.Unlock()
	if missing > 0 {
		return
	}
	if err == nil && !w.store.data.Packages.Store(draw.SampleID(w.number), w.bytes, w.written) {
		err = errPackageRefused
	}
	if err != nil {
		w.written(err)
	}
}

var errPackageRefused = errors.New("mpicache: the folder of packages has no room or is behind")

func (w *packageWrite) written(err error) {
	w.store.Locked(func() {
		w.store.notePackage("a package is not written", w.number, err)
		w.store.Step(stager.Packed{Package: w.number, Bytes: int64(len(w.bytes)), Err: err})
	})
	w.store.reads.Done()
}

// unpack reads a package, and puts the samples that are wanted into new places.
func (s *Store) unpack(c stager.Unpack) {
	places := map[draw.SampleID][]byte{}
	for _, id := range c.IDs {
		if !s.occupy(id) {
			s.Step(stager.Unpacked{Package: c.Package, NoRoom: true})
			return
		}
		places[id] = s.bytes(id)
	}
	bytes := make([]byte, s.packageBytes(c.Layout))
	s.reads.Add(1)
	s.data.Packages.Recall(draw.SampleID(c.Package), bytes, c.Need, func(err error) {
		var sums map[draw.SampleID]uint32
		if err == nil {
			sums = s.divide(c.Layout, bytes, places)
		}
		s.Locked(func() {
			s.notePackage("a package is not read", c.Package, err)
			for id, sum := range sums {
				s.put(id, sum)
			}
			s.Step(stager.Unpacked{Package: c.Package, Bytes: int64(len(bytes)), Err: err})
		})
		s.reads.Done()
	})
}

// divide copies the samples of a package to their places, and returns their sums.
func (s *Store) divide(
	layout []draw.SampleID, bytes []byte, places map[draw.SampleID][]byte,
) map[draw.SampleID]uint32 {
	sums := map[draw.SampleID]uint32{}
	for _, id := range layout {
		size := s.data.Size(id)
		if place, wanted := places[id]; wanted {
			copy(place, bytes)
			sums[id] = s.sumOf(place, nil)
		}
		bytes = bytes[size:]
	}
	return sums
}

// notePackage warns of the first package that fails.
func (s *Store) notePackage(what string, number uint32, err error) {
	if err == nil || s.packageFailed || s.closed {
		return
	}
	s.packageFailed = true
	s.rank.Log.Warn(what+"; its samples are read one by one", "data", s.data.Name,
		"package", number, "error", err)
}
