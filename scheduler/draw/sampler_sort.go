package draw

import (
	"math"
	"slices"
)

// A timeSorter receives words of (time key, id), in order of ids, and returns the ids in order of
// time, equal keys in order of ids. It puts words into buckets by time, so that each bucket can be
// sorted within the processor's cache, and no second copy of all words is needed.
type timeSorter struct {
	buckets []timeBucket
	of      []uint16 // bucket by the key's upper bits
	shift   uint     // of a word, to those bits
	n       int
	spare   []uint64 // for blocks
}

// timeBucket has its words in blocks.
type timeBucket struct {
	full [][]uint64
	last []uint64 // has room, or blockWords
}

const (
	blockWords   = 512
	blocksAtOnce = 256   // allocated together: 1 MiB, which is freed as a whole
	bucketWords  = 16384 // on average: with its copy 256 KiB
	bucketsMax   = 1024
	timeCellBits = 16 // of a key, by which buckets differ
)

// newTimeSorter returns a sorter for about the given number of words. before returns roughly the
// share of the words that come before a key; it must not decrease with the key.
func newTimeSorter(words int, before func(key uint32) float64) *timeSorter {
	n := min(max(1, words/bucketWords), bucketsMax)
	s := &timeSorter{buckets: make([]timeBucket, n), of: []uint16{0}, shift: 64}
	if n == 1 {
		return s
	}
	s.of, s.shift = make([]uint16, 1<<timeCellBits), 64-timeCellBits
	for cell := range s.of {
		share := min(before(uint32(cell)<<(32-timeCellBits)), 1)
		s.of[cell] = uint16(min(int(share*float64(n)), n-1))
	}
	return s
}

// evenKeys is newTimeSorter's before for keys that are all equally likely.
func evenKeys(key uint32) float64 { return float64(key) * 0x1p-32 }

func (s *timeSorter) add(word uint64) {
	b := &s.buckets[s.of[word>>s.shift]]
	if len(b.last) == cap(b.last) {
		b.full, b.last = append(b.full, b.last), s.block()
	}
	b.last = append(b.last, word)
	s.n++
}

func (s *timeSorter) block() []uint64 {
	if len(s.spare) == 0 {
		n := blocksAtOnce
		if len(s.buckets) == 1 {
			n = 1 // there are few words
		}
		s.spare = make([]uint64, n*blockWords)
	}
	b := s.spare[:0:blockWords]
	s.spare = s.spare[blockWords:]
	return b
}

// ids returns the ids of the first length words. When there are fewer, the epoch is filled from its
// beginning, repeatedly.
func (s *timeSorter) ids(length int) []SampleID {
	ids := make([]SampleID, 0, length)
	for words := range s.sorted {
		for _, w := range words[:min(len(words), length-len(ids))] {
			ids = append(ids, SampleID(w))
		}
	}
	n := len(ids)
	ids = ids[:length]
	repeat(ids, n)
	return ids
}

// sorted yields the words in order of time, in parts, each valid until the next. It forgets them.
func (s *timeSorter) sorted(yield func([]uint64) bool) {
	var words, scratch []uint64
	for i := range s.buckets {
		b := &s.buckets[i]
		words = words[:0]
		for _, block := range append(b.full, b.last) {
			words = append(words, block...)
		}
		*b = timeBucket{}
		scratch = slices.Grow(scratch[:0], len(words))[:len(words)]
		if !yield(sortByTime(words, scratch)) {
			return
		}
	}
	s.spare = nil
}

// sortByTime sorts words by their upper 32 bits, a time key, and keeps the order of equal ones.
// scratch has the same length; the result is one of the two slices.
//
// It is a radix sort from the least significant digit in at most three passes, of 11, 11 and 10
// bits.
func sortByTime(words, scratch []uint64) []uint64 {
	var count [3][1 << 11]uint32
	for _, w := range words {
		count[0][w>>32&0x7ff]++
		count[1][w>>43&0x7ff]++
		count[2][w>>54]++
	}
	for pass := range count {
		sum := uint32(0)
		place := &count[pass]
		shift := 32 + 11*pass
		if len(words) > 0 && int(place[words[0]>>shift&0x7ff]) == len(words) {
			continue // all have the same digit
		}
		for d, n := range place {
			place[d] = sum
			sum += n
		}
		for _, w := range words {
			d := w >> shift & 0x7ff
			scratch[place[d]] = w
			place[d]++
		}
		words, scratch = scratch, words
	}
	return words
}

// firstIDs returns the ids in the first length words, as timeSorter.ids does.
func firstIDs(sorted []uint64, length int) []SampleID {
	ids := make([]SampleID, length)
	n := min(length, len(sorted))
	for i, w := range sorted[:n] {
		ids[i] = SampleID(w)
	}
	repeat(ids, n)
	return ids
}

// repeat fills ids from place n on by repeating the first n, 0 < n.
func repeat(ids []SampleID, n int) {
	for n < len(ids) {
		n += copy(ids[n:], ids[:n])
	}
}

// wholeBatches rounds a number of draws to full global batches: up, or down when the last one is
// dropped. There is at least one.
func wholeBatches(draws, batch int, dropLast bool) int {
	if !dropLast {
		draws += batch - 1
	}
	return max(draws/batch, 1) * batch
}

// Sortable maps a number that is not NaN to an integer with the same order; -0 and 0 are the same.
func Sortable(f float32) uint32 {
	b := math.Float32bits(f + 0) // -0 + 0 = 0
	if b>>31 == 1 {
		return ^b
	}
	return b | 1<<31
}
