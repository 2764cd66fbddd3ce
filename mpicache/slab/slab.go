// Package slab is a rank's memory for samples: a sealed memfd that clients map, and an Arena of
// places in it.
package slab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// populateBytes is how much memory is requested in one call: a call that is interrupted by a signal
// starts over, and 256 MiB take about 50 ms.
const populateBytes = 256 << 20

// Slab is the node's shared memory: one anonymous file (memfd) of a fixed size, really allocated,
// that the rank maps read-write and sends to clients read-only. The embedded Arena divides it. A
// Directory follows the memory that the Arena divides.
//
// Bytes may be used by many goroutines; Alloc, Free and the sums are the Arena's and need the
// caller's lock.
type Slab struct {
	*Arena
	fd        int // read-write; -1: no memory
	memory    []byte
	directory *Directory // nil: no memory, or no data sets
}

// New allocates a slab of sizeBytes (≥ 0, rounded up to a page) for samples of these data sets. A
// slab of 0 bytes has no file, and every Alloc fails.
//
// The memory is allocated when New returns, so that no later write can fail for lack of it. It is
// in huge pages if the system provides them for shared memory
// (/sys/kernel/mm/transparent_hugepage/shmem_enabled). The file's size is sealed. room returns how
// many bytes may be allocated; nil means all that the machine has. An error names the size that
// could not be allocated.
func New(sizeBytes int64, sets []Set, room func() int64) (*Slab, error) {
	if sizeBytes < 0 {
		panic(fmt.Sprintf("slab: a slab of %d bytes", sizeBytes))
	}
	sizeBytes = wholePages(sizeBytes)
	s := &Slab{Arena: NewArena(sizeBytes), fd: -1}
	if sizeBytes == 0 {
		return s, nil
	}
	if err := s.open(sizeBytes+wholePages(directoryBytes(sets)), room); err != nil {
		return nil, errors.Join(
			fmt.Errorf("slab of %s (%d bytes): %w", humanize.IBytes(uint64(sizeBytes)), sizeBytes,
				err), s.Close())
	}
	if len(sets) > 0 {
		s.directory = newDirectory(s.memory[sizeBytes:], sizeBytes, sets)
	}
	return s, nil
}

func wholePages(n int64) int64 { return roundUp(n, int64(unix.Getpagesize())) }

// roundUp returns the smallest multiple of unit that is at least n.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// Entries are the directory's entries of data set i, in New's order; nil for a slab without one.
func (s *Slab) Entries(i int) *Entries {
	if s.directory == nil {
		return nil
	}
	return s.directory.entries[i]
}

// open creates, fills, maps and seals the file.
func (s *Slab) open(sizeBytes int64, room func() int64) (err error) {
	// Otherwise the kernel would kill a process, not return an error.
	if have, err := availableBytes(); err == nil && have < sizeBytes {
		return fmt.Errorf("only %s are available", humanize.IBytes(uint64(have)))
	}
	if s.fd, err = unix.MemfdCreate("rankpool-slab",
		unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		s.fd = -1
		return fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(s.fd, sizeBytes); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	if s.memory, err = unix.Mmap(s.fd, 0, int(sizeBytes), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	// Best effort: many kernels have no huge pages for shared memory.
	_ = unix.Madvise(s.memory, unix.MADV_HUGEPAGE)
	for at := int64(0); at < sizeBytes; at += populateBytes {
		part := min(populateBytes, sizeBytes-at)
		if room != nil && room() < part { // others may have taken it since the size was chosen
			return fmt.Errorf("the node ran out of memory when %s of it were allocated",
				humanize.IBytes(uint64(at)))
		}
		if err := s.populate(at, part); err != nil {
			return fmt.Errorf("only %s could be allocated: %w", humanize.IBytes(uint64(at)), err)
		}
	}
	return seal(s.fd)
}

// populate allocates the pages of a part. Only writing through the mapping honours the huge-page
// advice; before Linux 5.14 the file is allocated instead.
func (s *Slab) populate(at, sizeBytes int64) error {
	for {
		err := unix.Madvise(s.memory[at:at+sizeBytes], unix.MADV_POPULATE_WRITE)
		if err == unix.EINVAL {
			err = unix.Fallocate(s.fd, 0, at, sizeBytes)
		}
		if err != unix.EINTR && err != unix.EAGAIN {
			return err
		}
	}
}

// availableBytes returns the kernel's estimate of what can be allocated without swapping
// (MemAvailable).
func availableBytes() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo: no MemAvailable")
}

// seal fixes the file's size. Writing is not sealed, since then the file could not give memory
// back; clients cannot map it for writing with the descriptor that they get.
//
// Source: Linux, mm/shmem.c, shmem_fallocate: punching a hole fails under F_SEAL_WRITE and
// F_SEAL_FUTURE_WRITE.
func seal(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return fmt.Errorf("sealing: %w", err)
	}
	return nil
}

// Release returns the memory of whole pages in off … off+n to the system: they read as zeros from
// then on, and must not be used.
func (s *Slab) Release(off, n int64) error {
	page := int64(unix.Getpagesize())
	begin, end := roundUp(off, page), (off+n)/page*page
	if end <= begin {
		return nil
	}
	if err := unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, begin,
		end-begin); err != nil {
		return fmt.Errorf("giving memory back: %w", err)
	}
	return nil
}

// ReadOnlyFD opens the slab for reading only; the descriptor is the caller's to pass on and to
// close. It is -1 for a slab of 0 bytes.
func (s *Slab) ReadOnlyFD() (int, error) {
	if s.fd < 0 {
		return -1, nil
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", s.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening the slab for reading: %w", err)
	}
	return fd, nil
}

// Bytes returns the slab's memory at the half-open range off … off+n; it stays valid until Close,
// and appending to it copies.
func (s *Slab) Bytes(off, n int64) []byte {
	return s.memory[off : off+n : off+n]
}

// Holds reports whether off … off+n lies in the memory for samples: a place that the directory
// names may be anything.
func (s *Slab) Holds(off, n int64) bool {
	return s.directory != nil && off >= 0 && off <= s.directory.sampleBytes-n
}

// Close unmaps the slab; clients that mapped it keep their mapping. Results of Bytes must not be
// used after it.
func (s *Slab) Close() error {
	if s.fd < 0 {
		return nil
	}
	var err error
	if s.memory != nil {
		err = unix.Munmap(s.memory)
	}
	err = errors.Join(err, unix.Close(s.fd))
	s.fd, s.memory = -1, nil
	if err != nil {
		return fmt.Errorf("closing the slab: %w", err)
	}
	return nil
}

// Footprint returns the memory that a sample of sizeBytes uses in a slab.
func Footprint(sizeBytes int64) int64 { return max(granuleBytes, roundUp(sizeBytes, granuleBytes)) }
