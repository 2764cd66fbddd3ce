package systems

import (
	"fmt"
	"slices"

	"rankpool/scheduler"
)

// Memory is what a pool holds, and at which rank each sample lies: one, unless the pool says Copy.
// It never holds more than its capacity, and counts what storage is read for.
//
// A rank's part of the capacity is equal; a sample goes to the rank that asked for it if that has
// room, else to the one with the most room. With samples of different sizes a rank's part may be
// exceeded by a sample; the whole never is.
type Memory struct {
	size          func(scheduler.SampleID) int64
	ranks         int
	unit          int64 // the bytes of every sample; 1 where they differ
	capacityBytes int64
	usedBytes     int64
	// by sample: 1 + rank; negative: it lay there last; 0: it never was here
	homes  []int32
	copies map[scheduler.SampleID][]int32 // ranks that hold a copy beside the home's
	// by sample: not served since it was brought in last
	fresh     []bool
	room      *rooms // by rank
	readBytes int64
	requests  int64
	moved     []scheduler.SampleID   // since the last call of Moved
	packages  [][]scheduler.SampleID // since the last call of Packages
}

// NewMemory returns an empty memory of capacityBytes over ranks.
func NewMemory(
	samples, ranks int, capacityBytes int64, size func(scheduler.SampleID) int64,
) *Memory {
	m := &Memory{
		size: size, ranks: ranks, unit: unitOf(samples, size), capacityBytes: capacityBytes,
		homes: make([]int32, samples),
		fresh: make([]bool, samples),
	}
	parts := make([]int64, ranks)
	for r := range parts {
		parts[r] = capacityBytes*int64(r+1)/int64(ranks) - capacityBytes*int64(r)/int64(ranks)
	}
	m.room = newRooms(parts)
	return m
}

// unitOf returns the bytes of every sample, 1 where they differ.
func unitOf(samples int, size func(scheduler.SampleID) int64) int64 {
	if samples == 0 {
		return 1
	}
	first := size(0)
	for id := range scheduler.SampleID(samples) {
		if size(id) != first {
			return 1
		}
	}
	return max(first, 1)
}

// Part returns a share of bytes, for a region of the memory: of samples of one size a whole number,
// so that regions hold the same samples whatever that size is.
func (m *Memory) Part(share float64, bytes int64) int64 {
	return int64(share*float64(bytes/m.unit)) * m.unit
}

// At reports whether a rank holds id.
func (m *Memory) At(id scheduler.SampleID, rank int) bool {
	return m.homes[id] == int32(rank)+1 || slices.Contains(m.copies[id], int32(rank))
}

// Has reports whether id is here.
func (m *Memory) Has(id scheduler.SampleID) bool { return m.homes[id] > 0 }

// Home returns the rank that has id, or that had it last; -1 if none did.
func (m *Memory) Home(id scheduler.SampleID) int { return int(max(m.homes[id], -m.homes[id])) - 1 }

// Size returns the bytes of a sample.
func (m *Memory) Size(id scheduler.SampleID) int64 { return m.size(id) }

// CapacityBytes is the most that Memory holds.
func (m *Memory) CapacityBytes() int64 { return m.capacityBytes }

// UsedBytes is what it holds.
func (m *Memory) UsedBytes() int64 { return m.usedBytes }

// Room returns the free bytes of a rank's part.
func (m *Memory) Room(rank int) int64 { return m.room.of(int32(rank)) }

// Fits reports whether id could be kept beside what is here.
func (m *Memory) Fits(id scheduler.SampleID) bool {
	return m.usedBytes+m.size(id) <= m.capacityBytes
}

// Keep takes in a sample that was read for a draw: its bytes are counted with the draw. It panics
// when the sample is here already or does not fit.
func (m *Memory) Keep(id scheduler.SampleID, rank int32) {
	size := m.size(id)
	if m.Has(id) || m.usedBytes+size > m.capacityBytes {
		panic(
			fmt.Sprintf(
				"systems: Keep of sample %d of %d bytes, here: %v, with %d of %d bytes used.", id,
				size,
				m.Has(id), m.usedBytes, m.capacityBytes))
	}
	if m.room.of(rank) < size {
		if w := m.room.widest(); m.room.of(w) > m.room.of(rank) {
			rank = w
		}
	}
	m.homes[id], m.fresh[id] = rank+1, false
	m.moved = append(m.moved, id)
	m.room.add(rank, -size)
	m.usedBytes += size
}

// Copy has a rank hold a copy of a sample that is here, out of another's memory or a read for a
// draw. It panics when the sample is not here, the rank holds it, or the rank has no room.
func (m *Memory) Copy(id scheduler.SampleID, rank int32) {
	size := m.size(id)
	if !m.Has(id) || m.At(id, int(rank)) || m.room.of(rank) < size {
		panic(
			fmt.Sprintf(
				"systems: Copy of sample %d of %d bytes to rank %d, here: %v, with %d bytes free.",
				id,
				size, rank, m.Has(id), m.room.of(rank)))
	}
	if m.copies == nil {
		m.copies = map[scheduler.SampleID][]int32{}
	}
	m.copies[id] = append(m.copies[id], rank)
	m.room.add(rank, -size)
	m.usedBytes += size
}

// Load brings samples in ahead of any draw, by one sequential read of storage: the read is counted
// here. It panics as Keep does.
func (m *Memory) Load(ids []scheduler.SampleID, rank int32) {
	if len(ids) == 0 {
		return
	}
	m.requests++
	for _, id := range ids {
		m.readBytes += m.size(id)
		m.Keep(id, rank)
		m.fresh[id] = true
	}
}

// LoadPackage is Load of samples that lie beside each other in a file made for that.
func (m *Memory) LoadPackage(ids []scheduler.SampleID, rank int32) {
	m.Load(ids, rank)
	m.packages = append(m.packages, ids)
}

// Packages returns the samples of each call of LoadPackage since the last call of Packages.
func (m *Memory) Packages() [][]scheduler.SampleID {
	loaded := m.packages
	m.packages = nil
	return loaded
}

// Drop gives up a sample that is here, with all copies.
func (m *Memory) Drop(id scheduler.SampleID) {
	for _, rank := range m.copies[id] {
		m.room.add(rank, m.size(id))
		m.usedBytes -= m.size(id)
	}
	delete(m.copies, id)
	rank := m.homes[id] - 1
	m.homes[id] = -m.homes[id]
	m.moved = append(m.moved, id)
	m.room.add(rank, m.size(id))
	m.usedBytes -= m.size(id)
}

// Served reports that id, which is here or was when it was served, answered a draw, and reports
// whether it was brought in ahead and this is the first since: such a draw is a read of storage
// done early, not a hit. A pool's caller calls it, not the pool.
func (m *Memory) Served(id scheduler.SampleID) (first bool) {
	first, m.fresh[id] = m.fresh[id], false
	return first
}

// Fresh reports whether id was brought in ahead and not served since.
func (m *Memory) Fresh(id scheduler.SampleID) bool { return m.fresh[id] }

// Ahead reports that id, which is here, was read for no draw. A pool's caller calls it, not the
// pool.
func (m *Memory) Ahead(id scheduler.SampleID) { m.fresh[id] = true }

// Moved calls f for each sample that was taken in or dropped since the last call of Moved, once a
// move, in order.
func (m *Memory) Moved(f func(scheduler.SampleID)) {
	for _, id := range m.moved {
		f(id)
	}
	m.moved = m.moved[:0]
}

// Loaded returns the bytes and the requests of all calls of Load since the last call of Loaded.
func (m *Memory) Loaded() (bytes, requests int64) {
	bytes, requests = m.readBytes, m.requests
	m.readBytes, m.requests = 0, 0
	return bytes, requests
}
