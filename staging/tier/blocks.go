package tier

import "math/bits"

// blocks records which blocks of a file are free.
type blocks struct {
	free []uint64 // a bit for each block
	some []uint64 // a bit for each word of free that is not 0
	left int
	next int // where the search continues, so that runs are used one after another
}

// extent is a run of blocks: [start, start+n).
type extent struct{ start, n uint32 }

// maxBlocks bounds the memory of a disk's bit map to 32 MiB.
const maxBlocks = 1 << 28

func newBlocks(n int) *blocks {
	b := &blocks{free: make([]uint64, (n+63)/64), left: n}
	b.some = make([]uint64, (len(b.free)+63)/64)
	b.mark(0, n, true)
	return b
}

// take allocates n blocks, in as few pieces as the next free runs allow. It returns false if there
// are not enough.
func (b *blocks) take(n int) ([]extent, bool) {
	if n > b.left {
		return nil, false
	}
	b.left -= n
	var taken []extent
	for n > 0 {
		start := b.find(b.next)
		length := b.run(start, n)
		b.mark(start, length, false)
		taken = append(taken, extent{uint32(start), uint32(length)})
		b.next = start + length
		n -= length
	}
	return taken, true
}

// give frees blocks.
func (b *blocks) give(extents []extent) {
	for _, e := range extents {
		b.mark(int(e.start), int(e.n), true)
		b.left += int(e.n)
	}
}

// find returns the first free block from a position on, or from the beginning. There must be one.
func (b *blocks) find(from int) int {
	if at, found := inWord(b.free, from); found {
		return at
	}
	word, found := inWord(b.some, from/64+1)
	for at := (from/64+1)/64 + 1; !found; at++ {
		word, found = inWord(b.some, 64*(at%len(b.some)))
	}
	return 64*word + bits.TrailingZeros64(b.free[word])
}

// inWord returns the first bit that is set from a position on, in the word of that position.
func inWord(words []uint64, from int) (at int, found bool) {
	if from/64 >= len(words) {
		return 0, false
	}
	rest := words[from/64] >> (from % 64)
	return from + bits.TrailingZeros64(rest), rest != 0
}

// run returns how many blocks are free starting at a free one, at most n.
func (b *blocks) run(start, n int) int {
	length := 0
	for length < n {
		at := start + length
		if at/64 >= len(b.free) {
			break
		}
		inWord := 64 - at%64
		free := min(inWord, bits.TrailingZeros64(^(b.free[at/64] >> (at % 64))))
		length += free
		if free < inWord {
			break
		}
	}
	return min(length, n)
}

// mark marks blocks as free or used.
func (b *blocks) mark(start, n int, free bool) {
	for end := start + n; start < end; {
		word, bit := start/64, start%64
		length := min(64-bit, end-start)
		mask := ^uint64(0) >> (64 - length) << bit
		if free {
			b.free[word] |= mask
		} else {
			b.free[word] &^= mask
		}
		if b.free[word] != 0 {
			b.some[word/64] |= 1 << (word % 64)
		} else {
			b.some[word/64] &^= 1 << (word % 64)
		}
		start += length
	}
}
