package store

import (
	"errors"
	"fmt"
	"sync"

	"rankpool/mpicache/slab"
)

// Memory is the rank's memory for samples, of all data sets. Its methods may be called
// concurrently.
type Memory struct {
	slab      *slab.Slab
	fullBytes int64 // of the slab, at the start
	spoilt    func(why error)

	mu        sync.Mutex
	arena     *slab.Arena
	heldBytes int64 // of the slab, when memory was released last
}

// NewMemory returns the memory of a slab. spoilt is called when another process has written to the
// directory in it, and must not return.
func NewMemory(s *slab.Slab, spoilt func(why error)) *Memory {
	return &Memory{slab: s, fullBytes: s.SizeBytes(), spoilt: spoilt, arena: s.Arena}
}

func (m *Memory) alloc(sizeBytes int64) (off int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.arena.Alloc(max(sizeBytes, 1))
}

func (m *Memory) free(off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.arena.Has(off) {
		m.isSpoilt("it frees place %d, which holds no sample", off)
	}
	m.arena.Free(off)
}

func (m *Memory) bytes(off, sizeBytes int64) []byte { return m.slab.Bytes(off, sizeBytes) }

// isSpoilt ends the rank.
func (m *Memory) isSpoilt(format string, args ...any) {
	err := fmt.Errorf("mpicache: another process has written to the directory of the memory for "+
		"samples: "+format, args...)
	m.spoilt(err)
	panic(err)
}

// Size returns the slab's size now, and how much of it is used.
func (m *Memory) Size() (sizeBytes, usedBytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.arena.SizeBytes(), m.arena.UsedBytes()
}

// Shrink makes the slab end at bytes: no sample is put beyond it.
func (m *Memory) Shrink(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arena.Shrink(bytes)
}

// Release returns the memory beyond the slab's end that is free by now to the system.
func (m *Memory) Release() error {
	var failed error
	for _, r := range m.gone() {
		failed = errors.Join(failed, m.slab.Release(r[0], r[1]))
	}
	return failed
}

// gone returns the ranges that are out of use, offset and length, if there are more than last time.
// Nobody will use them again.
func (m *Memory) gone() (ranges [][2]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := m.arena.SizeBytes()
	if size == m.heldBytes {
		return nil
	}
	m.heldBytes = size
	m.arena.Gone(func(off, sizeBytes int64) { ranges = append(ranges, [2]int64{off, sizeBytes}) })
	return ranges
}
