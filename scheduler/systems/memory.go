package systems

import (
	"fmt"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// Memory records which samples a pool holds, and on which rank each one lies. A sample lies on one
// rank unless the pool calls Copy. Memory never exceeds its capacity, and counts the reads of Load.
//
// Each rank has an equal part of the capacity. A sample goes to the rank that asked for it if that
// rank has room, else to the one with the most room. A sample that fits in no part exceeds one, but
// never the whole.
type Memory struct {
	size          func(draw.SampleID) int64
	ranks         int
	unit          int64 // bytes per sample; 1 if sizes differ
	capacityBytes int64
	usedBytes     int64
	// by sample: 1 + the rank that holds it; negated: the one that held it last; 0: none did
	homes  []int32
	copies map[draw.SampleID][]int32 // ranks that hold a copy besides the home
	// by sample: loaded ahead of draws, and not served since
	fresh     []bool
	room      []int64 // free bytes by rank; negative if a sample did not quite fit
	readBytes int64
	requests  int64
	moved     []draw.SampleID   // since the last call to Moved
	packages  [][]draw.SampleID // since the last call to Packages
}

// NewMemory returns an empty memory of capacityBytes over ranks.
func NewMemory(
	samples, ranks int, capacityBytes int64, size func(draw.SampleID) int64,
) *Memory {
	m := &Memory{
		size: size, ranks: ranks, unit: unitOf(samples, size), capacityBytes: capacityBytes,
		homes: make([]int32, samples),
		fresh: make([]bool, samples),
	}
	for r := range int64(ranks) {
		part := capacityBytes*(r+1)/int64(ranks) - capacityBytes*r/int64(ranks)
		m.room = append(m.room, part)
	}
	return m
}

// unitOf returns the bytes per sample, or 1 if sizes differ.
func unitOf(samples int, size func(draw.SampleID) int64) int64 {
	if samples == 0 {
		return 1
	}
	first := size(0)
	for id := range draw.SampleID(samples) {
		if size(id) != first {
			return 1
		}
	}
	return max(first, 1)
}

// Part returns a share of bytes, for a region of the memory. If all samples have one size, it is a
// whole number of samples, so that regions hold the same samples whatever the size.
func (m *Memory) Part(share float64, bytes int64) int64 {
	return wholeUnits(share, bytes, m.unit)
}

// wholeUnits returns a share of bytes, rounded down to a multiple of unit.
func wholeUnits(share float64, bytes, unit int64) int64 {
	return int64(share*float64(bytes/unit)) * unit
}

// At reports whether a rank holds id.
func (m *Memory) At(id draw.SampleID, rank int32) bool {
	return m.homes[id] == rank+1 || slices.Contains(m.copies[id], rank)
}

// Has reports whether id is in memory.
func (m *Memory) Has(id draw.SampleID) bool { return m.homes[id] > 0 }

// Home returns the rank that holds id or held it last, or -1 if none did.
func (m *Memory) Home(id draw.SampleID) int { return int(max(m.homes[id], -m.homes[id])) - 1 }

// Size returns the size of a sample in bytes.
func (m *Memory) Size(id draw.SampleID) int64 { return m.size(id) }

// CapacityBytes returns the most bytes that Memory holds.
func (m *Memory) CapacityBytes() int64 { return m.capacityBytes }

// UsedBytes returns the bytes that it holds now.
func (m *Memory) UsedBytes() int64 { return m.usedBytes }

// Room returns the free bytes of a rank's part.
func (m *Memory) Room(rank int) int64 { return m.room[rank] }

// Fits reports whether there is room for id.
func (m *Memory) Fits(id draw.SampleID) bool {
	return m.usedBytes+m.size(id) <= m.capacityBytes
}

// Keep adds a sample that was read for a draw. Its bytes are counted with the draw. It panics if
// the sample is in memory already or does not fit.
func (m *Memory) Keep(id draw.SampleID, rank int32) {
	size := m.size(id)
	if m.Has(id) || m.usedBytes+size > m.capacityBytes {
		panic(fmt.Sprintf("systems: Keep of sample %d of %d bytes, here: %v, with %d of %d bytes used.",
			id, size, m.Has(id), m.usedBytes, m.capacityBytes))
	}
	if m.room[rank] < size {
		if most := slices.Max(m.room); most > m.room[rank] {
			rank = int32(slices.Index(m.room, most))
		}
	}
	m.homes[id], m.fresh[id] = rank+1, false
	m.moved = append(m.moved, id)
	m.room[rank] -= size
	m.usedBytes += size
}

// Draw answers a draw by a cache of samples that are all in memory. rank reads the sample if the
// cache does not have it.
func (m *Memory) Draw(cache *stager.Cache, u stager.Use, rank int32) Answer {
	outcome := cache.Draw(u, m.Drop)
	if outcome == stager.Admitted {
		m.Keep(u.ID, rank)
	}
	return Answer{Served: u.ID, Read: outcome != stager.Hit}
}

// Copy adds a copy on a rank of a sample that is in memory; the bytes come from another rank or
// from a read for a draw. It panics if the sample is not in memory, the rank holds it, or the rank
// has no room.
func (m *Memory) Copy(id draw.SampleID, rank int32) {
	size := m.size(id)
	if !m.Has(id) || m.At(id, rank) || m.room[rank] < size {
		panic(fmt.Sprintf("systems: Copy of sample %d of %d bytes to rank %d, here: %v, with %d bytes "+
			"free.", id, size, rank, m.Has(id), m.room[rank]))
	}
	if m.copies == nil {
		m.copies = map[draw.SampleID][]int32{}
	}
	m.copies[id] = append(m.copies[id], rank)
	m.room[rank] -= size
	m.usedBytes += size
}

// Load adds samples ahead of any draw, by one sequential read of storage, which it counts. It
// panics as Keep does.
func (m *Memory) Load(ids []draw.SampleID, rank int32) {
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

// LoadPackage is Load for samples that lie side by side in a file written for that purpose.
func (m *Memory) LoadPackage(ids []draw.SampleID, rank int32) {
	m.Load(ids, rank)
	m.packages = append(m.packages, ids)
}

// Packages returns the samples of each call to LoadPackage since the last call to Packages.
func (m *Memory) Packages() [][]draw.SampleID {
	loaded := m.packages
	m.packages = nil
	return loaded
}

// Drop removes a sample that is in memory, and all its copies.
func (m *Memory) Drop(id draw.SampleID) {
	for _, rank := range m.copies[id] {
		m.room[rank] += m.size(id)
		m.usedBytes -= m.size(id)
	}
	delete(m.copies, id)
	rank := m.homes[id] - 1
	m.homes[id] = -m.homes[id]
	m.moved = append(m.moved, id)
	m.room[rank] += m.size(id)
	m.usedBytes -= m.size(id)
}

// Served records that id answered a draw. It reports whether id was loaded ahead and this is its
// first draw since: such a draw is an early read of storage, not a hit. A pool's caller calls it,
// not the pool.
func (m *Memory) Served(id draw.SampleID) (first bool) {
	first, m.fresh[id] = m.fresh[id], false
	return first
}

// Fresh reports whether id was loaded ahead and not served since.
func (m *Memory) Fresh(id draw.SampleID) bool { return m.fresh[id] }

// Moved returns the samples added or dropped since the last call to Moved, once per move, in order.
// The next move reuses the slice.
func (m *Memory) Moved() []draw.SampleID {
	moved := m.moved
	m.moved = m.moved[:0]
	return moved
}

// Loaded returns the bytes and the requests of all calls to Load since the last call to Loaded.
func (m *Memory) Loaded() (bytes, requests int64) {
	bytes, requests = m.readBytes, m.requests
	m.readBytes, m.requests = 0, 0
	return bytes, requests
}
