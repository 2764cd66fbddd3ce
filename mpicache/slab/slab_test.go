package slab

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func newSlab(t *testing.T, sizeBytes int64) *Slab {
	t.Helper()
	s, err := New(sizeBytes, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSlabIsSharedReadOnly(t *testing.T) {
	const size = 1 << 20
	s := newSlab(t, size)
	off, ok := s.Alloc(5)
	if !ok {
		t.Fatal("no room in an empty slab")
	}
	copy(s.Bytes(off, 5), "bytes")
	fd, err := s.ReadOnlyFD()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	view, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(view)
	if !bytes.Equal(view[off:off+5], []byte("bytes")) {
		t.Error("a client does not see the rank's bytes")
	}
	if m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED); err == nil {
		unix.Munmap(m)
		t.Error("a client could map the slab for writing")
	}
	if err := unix.Ftruncate(s.fd, size/2); err == nil {
		t.Error("the slab could be shrunk")
	}
}

func TestSlabIsAllocated(t *testing.T) {
	const size = 3 << 20
	s := newSlab(t, size)
	var st unix.Stat_t
	if err := unix.Fstat(s.fd, &st); err != nil {
		t.Fatal(err)
	}
	if got := st.Blocks * 512; got < size {
		t.Errorf("%d bytes are allocated, want %d", got, size)
	}
}

func TestSlabBytesAreBounded(t *testing.T) {
	s := newSlab(t, 1<<16)
	b := s.Bytes(64, 64)
	if len(b) != 64 || cap(b) != 64 {
		t.Errorf("length %d, capacity %d, want 64: appending would write over a neighbour", len(b),
			cap(b))
	}
}

func TestEmptySlab(t *testing.T) {
	s := newSlab(t, 0)
	if _, ok := s.Alloc(0); ok {
		t.Error("a slab of 0 bytes gave memory")
	}
	if fd, err := s.ReadOnlyFD(); fd != -1 || err != nil {
		t.Errorf("ReadOnlyFD of a slab of 0 bytes: %d, %v", fd, err)
	}
}

func TestSlabTooLarge(t *testing.T) {
	_, err := New(1<<48, nil, nil)
	if err == nil {
		t.Fatal("a slab of 256 TiB was allocated")
	}
	if !strings.Contains(err.Error(), "256 TiB") {
		t.Errorf("the error does not name the size: %v", err)
	}
}

// TestSlabStopsWhereMemoryEnds checks that a slab checks before each of its parts whether there is
// memory for it.
func TestSlabStopsWhereMemoryEnds(t *testing.T) {
	left := int64(populateBytes) // for the first part
	_, err := New(populateBytes+1<<20, nil, func() int64 {
		defer func() { left = 1<<20 - 1 }()
		return left
	})
	if err == nil || !strings.HasSuffix(err.Error(),
		"the node ran out of memory when 256 MiB of it were allocated") {
		t.Errorf("memory for 256 MiB of a slab of 257: %v", err)
	}
	s, err := New(1<<20, nil, func() int64 { return 1 << 20 })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
