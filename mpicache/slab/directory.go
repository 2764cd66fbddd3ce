package slab

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sync/atomic"
	"unsafe"
)

// A Set is a data set whose samples a slab holds.
type Set struct {
	Samples int
	// Key identifies the data set, and changes with its files.
	Key [32]byte
}

// A Directory records which samples lie where in a slab. It is in the slab's file, after the
// samples, so that whoever has the memory knows what is in it: the rank that takes it over from a
// dead one, and a client that has no rank meanwhile. docs/wire/README.md has its layout.
//
// An entry is a word and a sum. The word, which is stored atomically, says where the sample lies
// and whether it is whole: that bit is set after the bytes and the sum are written, and cleared
// before either changes. So whenever a writer dies, every entry that it leaves marked whole is
// whole.
//
// Everybody who has the memory may write to it. Places in a directory are therefore checked: none
// may lie outside the samples' memory (Slab.Holds).
type Directory struct {
	sampleBytes int64 // the samples' memory before it
	entries     []*Entries
}

// Entries are a directory's entries for one data set. One goroutine at a time may change them. A
// slab without memory has nil entries, which record nothing.
type Entries struct {
	words []uint64
	sums  []uint32
	// stored, if not nil, is called after each store to the memory: tests stop the writer there.
	stored func()
}

// An Entry is a sample that lies in a slab.
type Entry struct {
	Set, Sample int
	Off         int64
}

// The layout of a directory.
const (
	directoryMagic = "rpslab01"
	headerBytes    = 32 // magic, bytes of the slab's samples, sets, 0
	setBytes       = 48 // samples, place of the words, and the key
	trailerBytes   = 8  // where the directory begins, at the end of the file
	alignBytes     = 64

	wholeBit = 1 << 63 // the sample's bytes are all there, and match the sum
	keptBit  = 1 << 62 // the sample is a resident: it stays until the cache needs the room
	takenBit = 1 << 61 // the sample has a place, but its bytes are not all there yet
	placeMax = 1<<48 - 1
)

var le = binary.LittleEndian

func align(n int64) int64 { return roundUp(n, alignBytes) }

// bytes returns the size of the entries for a data set: its words, and then its sums.
func (s Set) bytes() int64 { return align(8*int64(s.Samples)) + align(4*int64(s.Samples)) }

// directoryBytes returns the size of the directory for these data sets; 0 if there are none.
func directoryBytes(sets []Set) int64 {
	if len(sets) == 0 {
		return 0
	}
	n := align(headerBytes + setBytes*int64(len(sets)))
	for _, s := range sets {
		n += s.bytes()
	}
	return n + trailerBytes
}

// header returns the beginning of the directory for these data sets, which follows sampleBytes of
// samples.
func header(sampleBytes int64, sets []Set) []byte {
	b := []byte(directoryMagic)
	b = le.AppendUint64(b, uint64(sampleBytes))
	b = le.AppendUint64(b, uint64(len(sets)))
	b = le.AppendUint64(b, 0)
	at := align(headerBytes + setBytes*int64(len(sets)))
	for _, s := range sets {
		b = le.AppendUint64(b, uint64(s.Samples))
		b = le.AppendUint64(b, uint64(at))
		b = append(b, s.Key[:]...)
		at += s.bytes()
	}
	return b
}

// newDirectory writes an empty directory into memory, which has directoryBytes and is all zeros.
func newDirectory(memory []byte, sampleBytes int64, sets []Set) *Directory {
	copy(memory, header(sampleBytes, sets))
	le.PutUint64(memory[len(memory)-trailerBytes:], uint64(sampleBytes))
	return mapDirectory(memory, sampleBytes, sets)
}

// openDirectory returns the directory that memory holds, or nil unless it is for these data sets
// and sampleBytes of samples.
func openDirectory(memory []byte, sampleBytes int64, sets []Set) *Directory {
	if int64(len(memory)) < directoryBytes(sets) ||
		!bytes.HasPrefix(memory, header(sampleBytes, sets)) {
		return nil
	}
	return mapDirectory(memory, sampleBytes, sets)
}

func mapDirectory(memory []byte, sampleBytes int64, sets []Set) *Directory {
	d := &Directory{sampleBytes: sampleBytes}
	at := align(headerBytes + setBytes*int64(len(sets)))
	for _, s := range sets {
		n := int64(s.Samples)
		e := &Entries{}
		if n > 0 {
			e.words = unsafe.Slice((*uint64)(unsafe.Pointer(&memory[at])), n)
			e.sums = unsafe.Slice((*uint32)(unsafe.Pointer(&memory[at+align(8*n)])), n)
		}
		d.entries = append(d.entries, e)
		at += s.bytes()
	}
	return d
}

// Sum returns what a directory stores to check a sample's bytes: their CRC-32, which Go and Python
// compute at 1 GB/s and more. It protects against accidents, not against attacks.
//
// Source: IEEE 802.3, as in zlib.
func Sum(sample []byte) uint32 { return crc32.ChecksumIEEE(sample) }

func (e *Entries) store(id int, word uint64) {
	atomic.StoreUint64(&e.words[id], word)
	if e.stored != nil {
		e.stored()
	}
}

// Place returns where a sample lies or is to lie, false if it has no place.
func (e *Entries) Place(id int) (off int64, ok bool) {
	if e == nil || e.words[id]&(wholeBit|takenBit) == 0 {
		return 0, false
	}
	return int64(e.words[id]&placeMax) * granuleBytes, true
}

// Take gives a sample that has no place the one at off.
func (e *Entries) Take(id int, off int64) {
	e.store(id, e.words[id]&keptBit|takenBit|uint64(off/granuleBytes))
}

// Put records that all of a sample's bytes are at off, and have this sum. They must not change
// before Drop.
func (e *Entries) Put(id int, off int64, sum uint32) {
	if e == nil {
		return
	}
	kept := e.words[id] & keptBit
	if e.words[id]&wholeBit != 0 {
		e.Spoil(id)
	}
	atomic.StoreUint32(&e.sums[id], sum)
	if e.stored != nil {
		e.stored()
	}
	e.store(id, wholeBit|kept|uint64(off/granuleBytes))
}

// Keep records whether a sample is a resident.
func (e *Entries) Keep(id int, kept bool) {
	if e == nil {
		return
	}
	word := e.words[id] &^ uint64(keptBit)
	if kept {
		word |= keptBit
	}
	e.store(id, word)
}

// Spoil records that the bytes at a sample's place are not those of the sample.
func (e *Entries) Spoil(id int) {
	if e != nil && e.words[id]&wholeBit != 0 {
		e.store(id, e.words[id]&^uint64(wholeBit)|takenBit)
	}
}

// Drop gives up a sample's place. Whether it is a resident stays recorded.
func (e *Entries) Drop(id int) {
	if e != nil && e.words[id]&(wholeBit|takenBit) != 0 {
		e.store(id, e.words[id]&keptBit)
	}
}

// Sum returns the sum that a sample's bytes must have, or false if the sample is not whole.
func (e *Entries) Sum(id int) (sum uint32, whole bool) {
	if e == nil || e.words[id]&wholeBit == 0 {
		return 0, false
	}
	return e.sums[id], true
}

// recover returns the residents that are whole and lie within sizeBytes, in order of their places,
// and how many whole ones there were. Residents that were still being read do not count: a sample
// may become a resident before its bytes are there, if it was drawn while the cache was away.
// recover clears all other entries. size is a sample's size in bytes. Of two that overlap, which no
// writer leaves, the first counts.
func (d *Directory) recover(
	sizeBytes int64, size func(set, sample int) int64,
) (whole []Entry, residents int) {
	for set, e := range d.entries {
		for id, word := range e.words {
			in := word&(keptBit|wholeBit) == keptBit|wholeBit
			if in {
				residents++
			}
			off := int64(word&placeMax) * granuleBytes
			if in && off <= sizeBytes-Footprint(size(set, id)) {
				whole = append(whole, Entry{set, id, off})
			} else if word != 0 {
				e.store(id, 0)
			}
		}
	}
	slices.SortFunc(whole, func(a, b Entry) int { return cmp.Compare(a.Off, b.Off) })
	end := int64(0)
	whole = slices.DeleteFunc(whole, func(w Entry) bool {
		if w.Off < end {
			d.entries[w.Set].store(w.Sample, 0)
			return true
		}
		end = w.Off + Footprint(size(w.Set, w.Sample))
		return false
	})
	return whole, residents
}
