package slab

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

const (
	granuleBytes = 64 // a cache line: no two samples share one
	// 32 second-level classes per power of two, so a class is at most 3 % wide (Masmano et al., §3,
	// suggest 4 or 5 bits).
	subBits    = 5
	subClasses = 1 << subBits
	levels     = 40 // first-level classes: 2^44 granules, 1 PiB
	// exactTries is how many free blocks of the request's class are tried before a block of a
	// larger class is split.
	exactTries = 16

	none = int32(0)  // no block
	live = int32(-1) // in prev: the block is allocated
	gone = int32(-2) // in prev: the block was taken out of use by Shrink
)

// Arena divides a range of offsets 0 … size-1 into blocks: the two-level segregated fit allocator,
// with its records outside the memory it divides.
//
// It touches no memory but its own: offsets are numbers. Blocks start at multiples of 64 bytes and
// are rounded up to them. Alloc and Free take constant time, except when the record arrays grow;
// adjacent free blocks are merged at once. A record uses 20 bytes, 22 in an arena of more than
// 256 GiB, and a live block 4 to 8 more in the table that finds it by its offset. The same calls
// give the same offsets. It is not safe for concurrent use.
//
// Source: M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a new dynamic memory allocator for
// real-time systems", ECRTS 2004, §3. Differs: no headers in the memory, since trainers see only
// samples: records are dense, and Free finds a record by a hash table whose chains go through the
// links that a live block does not need. A few blocks of the request's own class are tried first
// (the paper takes the next class at once), which leaves large blocks whole for longer.
type Arena struct {
	blocks    []block  // blocks[0] is no block; blocks[1] starts at offset 0
	high      []uint16 // by block, of block.low's bits above 32; nil if there are none
	spare     int32    // records not in use, linked by next
	buckets   []int32  // live blocks by hash of their offset, linked by next
	lives     int      // live blocks
	first     uint64   // bit l: second[l] ≠ 0
	second    [levels]uint32
	heads     [levels][subClasses]int32 // free blocks by class, linked by next and prev
	granules  int64
	usedUnits int64
	limit     int64 // granules from here on are out of use, or will be when they are freed
	goneUnits int64
}

// isFree reports whether b is a free block.
func (a *Arena) isFree(b int32) bool { return b != none && a.blocks[b].prev >= none }

// block is a run of granules, up to the start of the block after it.
type block struct {
	low           uint32 // first granule, the lowest 32 bits (Arena.at)
	before, after int32  // neighbours in the arena
	next, prev    int32  // free: the class's list; live: next is the hash chain, prev is live
}

// NewArena returns an arena of sizeBytes (≥ 0, rounded down to 64), all of it free.
func NewArena(sizeBytes int64) *Arena {
	if sizeBytes < 0 || sizeBytes >= granuleBytes<<(levels+subBits-1) {
		panic(fmt.Sprintf("slab: an arena of %d bytes is out of range", sizeBytes))
	}
	a := &Arena{
		granules: sizeBytes / granuleBytes, limit: sizeBytes / granuleBytes,
		blocks: make([]block, 1, 64), buckets: make([]int32, 64),
	}
	if a.granules > math.MaxUint32 {
		a.high = make([]uint16, 1, 64)
	}
	if a.granules > 0 {
		a.link(a.record())
	}
	return a
}

// Expect makes room for the records of this many live blocks, and an eighth more for free ones, so
// that no array is copied as they are added.
func (a *Arena) Expect(blocks int) {
	a.blocks = slices.Grow(a.blocks, blocks+blocks/8)
	if a.high != nil {
		a.high = slices.Grow(a.high, blocks+blocks/8)
	}
	if blocks > len(a.buckets) {
		a.rehash(blocks)
	}
}

// record returns an unused record.
func (a *Arena) record() int32 {
	if r := a.spare; r != none {
		a.spare = a.blocks[r].next
		return r
	}
	a.blocks = append(a.blocks, block{})
	if a.high != nil {
		a.high = append(a.high, 0)
	}
	return int32(len(a.blocks) - 1)
}

// at is a block's first granule.
func (a *Arena) at(b int32) int64 {
	at := int64(a.blocks[b].low)
	if a.high != nil {
		at |= int64(a.high[b]) << 32
	}
	return at
}

// setAt sets a block's first granule.
func (a *Arena) setAt(b int32, at int64) {
	a.blocks[b].low = uint32(at)
	if a.high != nil {
		a.high[b] = uint16(at >> 32)
	}
}

// Alloc returns the offset of a free block of at least sizeBytes (≥ 0), or false when no free block
// is large enough.
func (a *Arena) Alloc(sizeBytes int64) (off int64, ok bool) {
	if sizeBytes < 0 {
		panic(fmt.Sprintf("slab: Alloc of %d bytes", sizeBytes))
	}
	if sizeBytes > a.granules*granuleBytes {
		return 0, false
	}
	want := Footprint(sizeBytes) / granuleBytes
	b := a.find(want)
	if b == none {
		return 0, false
	}
	a.unlink(b)
	if a.size(b) > want {
		a.link(a.split(b, want))
	}
	a.usedUnits += want
	a.remember(b)
	return a.at(b) * granuleBytes, true
}

// Free frees the block at off, which Alloc returned; it panics if there is none.
func (a *Arena) Free(off int64) {
	b := a.forget(off)
	a.usedUnits -= a.size(b)
	if b = a.trim(b); b == none {
		return
	}
	if p := a.blocks[b].before; a.isFree(p) {
		a.unlink(p)
		a.absorb(p)
		b = p
	}
	if n := a.blocks[b].after; a.isFree(n) {
		a.unlink(n)
		a.absorb(b)
	}
	a.link(b)
}

// Has reports whether Free may be called with off.
func (a *Arena) Has(off int64) bool { return *a.chained(off) != none }

// SizeBytes returns the arena's size, without what was taken out of use.
func (a *Arena) SizeBytes() int64 { return (a.granules - a.goneUnits) * granuleBytes }

// UsedBytes is the sum of the live blocks, each rounded up to 64 bytes.
func (a *Arena) UsedBytes() int64 { return a.usedUnits * granuleBytes }

// FreeBytes is the sum of the free blocks.
func (a *Arena) FreeBytes() int64 { return (a.granules - a.goneUnits - a.usedUnits) * granuleBytes }

// size is a block's length in granules.
func (a *Arena) size(b int32) int64 {
	if n := a.blocks[b].after; n != none {
		return a.at(n) - a.at(b)
	}
	return a.granules - a.at(b)
}

// class maps a length in granules (≥ 1) to its two-level class; class 0 is exact (1 … 31 granules).
func class(granules int64) (level, sub int) {
	if granules < subClasses {
		return 0, int(granules)
	}
	level = bits.Len64(uint64(granules)) - subBits
	return level, int(granules>>(level-1)) - subClasses
}

// find returns a free block of at least want granules: one of the first few of want's own class,
// else the first of the smallest larger class.
func (a *Arena) find(want int64) int32 {
	level, sub := class(want)
	b := a.heads[level][sub]
	for range exactTries {
		if b == none {
			break
		}
		if a.size(b) >= want {
			return b
		}
		b = a.blocks[b].next
	}
	if m := a.second[level] >> sub >> 1 << 1 << sub; m != 0 {
		return a.heads[level][bits.TrailingZeros32(m)]
	}
	m := a.first >> level >> 1 << 1 << level
	if m == 0 {
		return none
	}
	level = bits.TrailingZeros64(m)
	return a.heads[level][bits.TrailingZeros32(a.second[level])]
}

// link puts b at the head of its class's free list.
func (a *Arena) link(b int32) {
	level, sub := class(a.size(b))
	head := a.heads[level][sub]
	a.blocks[b].next, a.blocks[b].prev = head, none
	if head != none {
		a.blocks[head].prev = b
	}
	a.heads[level][sub] = b
	a.first |= 1 << level
	a.second[level] |= 1 << sub
}

// unlink removes the free block b from its list.
func (a *Arena) unlink(b int32) {
	next, prev := a.blocks[b].next, a.blocks[b].prev
	if next != none {
		a.blocks[next].prev = prev
	}
	if prev != none {
		a.blocks[prev].next = next
		return
	}
	level, sub := class(a.size(b))
	if a.heads[level][sub] = next; next != none {
		return
	}
	if a.second[level] &^= 1 << sub; a.second[level] == 0 {
		a.first &^= 1 << level
	}
}

// split cuts b after want granules and returns the rest, which is in no list.
func (a *Arena) split(b int32, want int64) int32 {
	r := a.record()
	n := a.blocks[b].after
	a.blocks[r] = block{before: b, after: n}
	a.setAt(r, a.at(b)+want)
	if n != none {
		a.blocks[n].before = r
	}
	a.blocks[b].after = r
	return r
}

// absorb joins b with the block after it, whose record becomes spare.
func (a *Arena) absorb(b int32) {
	r := a.blocks[b].after
	n := a.blocks[r].after
	if n != none {
		a.blocks[n].before = b
	}
	a.blocks[b].after = n
	a.blocks[r] = block{next: a.spare}
	a.spare = r
}

// bucket is the hash chain of the block that starts at granule at.
func (a *Arena) bucket(at int64) *int32 {
	const golden = 0x9e3779b97f4a7c15 // 2^64 / φ: Knuth, TAOCP 3, §6.4, multiplicative hashing
	i, _ := bits.Mul64(uint64(at)*golden, uint64(len(a.buckets)))
	return &a.buckets[i]
}

// remember marks b live, and adds it to the table.
func (a *Arena) remember(b int32) {
	if a.lives == len(a.buckets) {
		a.rehash(2 * a.lives)
	}
	a.lives++
	chain := a.bucket(a.at(b))
	a.blocks[b].next, a.blocks[b].prev = *chain, live
	*chain = b
}

// rehash changes the number of chains.
func (a *Arena) rehash(chains int) {
	old := a.buckets
	a.buckets = make([]int32, chains)
	for _, b := range old {
		for b != none {
			next := a.blocks[b].next
			chain := a.bucket(a.at(b))
			a.blocks[b].next = *chain
			*chain = b
			b = next
		}
	}
}

// chained returns where the live block at off is linked into its chain, or the end of that chain.
func (a *Arena) chained(off int64) *int32 {
	link := a.bucket(off / granuleBytes)
	for *link != none && a.at(*link)*granuleBytes != off {
		link = &a.blocks[*link].next
	}
	return link
}

// forget removes the live block at off from the table and returns it.
func (a *Arena) forget(off int64) int32 {
	link := a.chained(off)
	b := *link
	if b == none {
		panic(fmt.Sprintf("slab: Free of offset %d, which is not allocated", off))
	}
	*link = a.blocks[b].next
	a.lives--
	return b
}

// occupy makes a live block of sizeBytes at off, which must lie in the first block. That must be
// free, as in a new arena in which only places after off are occupied.
func (a *Arena) occupy(off, sizeBytes int64) {
	const first = int32(1)
	b, want := first, Footprint(sizeBytes)/granuleBytes
	a.unlink(first)
	if at := off / granuleBytes; at > 0 {
		b = a.split(first, at)
		a.link(first)
	}
	if a.size(b) > want {
		a.link(a.split(b, want))
	}
	a.usedUnits += want
	a.remember(b)
}
