package scheduler

// sortByTime sorts words by their upper 32 bits, a time key, and keeps the order of equal ones.
// scratch has the same length; the result is one of the two slices.
//
// It is a radix sort from the least significant digit in three passes of 11, 11 and 10 bits.
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
		for d, n := range place {
			place[d] = sum
			sum += n
		}
		shift := 32 + 11*pass
		for _, w := range words {
			d := w >> shift & 0x7ff
			scratch[place[d]] = w
			place[d]++
		}
		words, scratch = scratch, words
	}
	return words
}

// inOrder sorts words of (time key, id) and returns the ids of the first length draws, as firstIDs
// does.
func inOrder(words []uint64, length int) []SampleID {
	return firstIDs(sortByTime(words, make([]uint64, len(words))), length)
}

// firstIDs returns the ids in the first length words. When there are fewer, the epoch is filled
// from its beginning, again and again.
func firstIDs(sorted []uint64, length int) []SampleID {
	ids := make([]SampleID, length)
	n := min(length, len(sorted))
	for i, w := range sorted[:n] {
		ids[i] = SampleID(w)
	}
	repeat(ids, n)
	return ids
}

// repeat fills ids from place n on with what comes before it, 0 < n.
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
