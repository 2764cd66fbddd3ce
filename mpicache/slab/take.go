package slab

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// An Identity distinguishes a slab's memory from all other memory on the machine while somebody has
// it.
type Identity struct {
	Device, Inode uint64
	SizeBytes     int64 // of the file, with the directory
}

// IdentityOf returns the identity of the memory behind a descriptor.
func IdentityOf(fd int) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Identity{}, fmt.Errorf("slab: fstat: %w", err)
	}
	return Identity{st.Dev, st.Ino, st.Size}, nil
}

// Identity returns the identity of the slab's memory; that of a slab of 0 bytes is zero.
func (s *Slab) Identity() (Identity, error) {
	if s.fd < 0 {
		return Identity{}, nil
	}
	return IdentityOf(s.fd)
}

// ErrOther is the error of Take if the memory is the right one, but its directory is for other data
// sets or has been overwritten.
var ErrOther = errors.New("slab: the memory holds other data sets")

// Take takes over the memory behind fd, which the clients of a dead rank still hold. No other
// process may write to it. The slab has no room before Resume. The caller keeps fd.
//
// It returns an error unless the memory is the one that want names, with its size sealed, and its
// directory is for these data sets; if only the directory is wrong, ErrOther.
func Take(fd int, want Identity, sets []Set) (*Slab, error) {
	got, err := IdentityOf(fd)
	if err != nil {
		return nil, err
	}
	if got != want {
		return nil, fmt.Errorf("slab: the memory is %+v, not %+v", got, want)
	}
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("slab: the memory has no seals: %w", err)
	}
	if seals&sealed != sealed {
		return nil, fmt.Errorf("slab: the size of the memory is not sealed (%#x)", seals)
	}
	s := &Slab{Arena: NewArena(0)}
	// The clients' descriptors are read-only.
	s.fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("slab: opening the memory for writing: %w", err)
	}
	if err := s.mapTaken(want.SizeBytes, sets); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Slab) mapTaken(fileBytes int64, sets []Set) (err error) {
	sampleBytes := fileBytes - wholePages(directoryBytes(sets))
	if sampleBytes <= 0 {
		return fmt.Errorf("%w: it is too small for their directory", ErrOther)
	}
	s.memory, err = unix.Mmap(s.fd, 0, int(fileBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("slab: mmap: %w", err)
	}
	s.directory = openDirectory(s.memory[sampleBytes:], sampleBytes, sets)
	if s.directory == nil {
		return ErrOther
	}
	return nil
}

// TakenBytes returns the size of the memory for samples, the most that Resume uses.
func (s *Slab) TakenBytes() int64 { return s.directory.sampleBytes }

// Resume makes a slab of at most sizeBytes (≥ 0, rounded up to a page) of memory that was taken
// over, and gives the rest back to the system. It returns the whole residents that it kept, in
// order of their places, which are allocated, and how many whole residents there were before. size
// is a sample's size in bytes. Check their bytes with Entries.Sum before using them.
func (s *Slab) Resume(
	sizeBytes int64, size func(set, sample int) int64,
) (whole []Entry, residents int, err error) {
	all := s.TakenBytes()
	sizeBytes = min(wholePages(sizeBytes), all)
	if err := s.Release(sizeBytes, all-sizeBytes); err != nil {
		return nil, 0, err
	}
	whole, residents = s.directory.recover(sizeBytes, size)
	s.Arena = NewArena(sizeBytes)
	s.Expect(len(whole))
	for _, w := range slices.Backward(whole) { // from the end: what is left is one free block
		s.occupy(w.Off, size(w.Set, w.Sample))
	}
	return whole, residents, nil
}
