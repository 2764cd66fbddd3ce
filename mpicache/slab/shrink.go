package slab

// Shrink takes everything from sizeBytes on (≥ 0, rounded down to 64) out of use: free memory at
// once, live blocks when they are freed. It does nothing if that much is out of use already. It
// walks all blocks.
func (a *Arena) Shrink(sizeBytes int64) {
	limit := sizeBytes / granuleBytes
	if limit >= a.limit {
		return
	}
	a.limit = limit
	for b := int32(1); b != none && a.granules > 0; b = a.blocks[b].after {
		if a.isFree(b) && a.at(b)+a.size(b) > limit {
			a.unlink(b)
			if below := a.trim(b); below != none {
				a.link(below)
			}
		}
	}
}

// trim takes the part of a block beyond the limit out of use, and returns the rest, or none. The
// block is neither live nor in a list.
func (a *Arena) trim(b int32) int32 {
	at, size := a.at(b), a.size(b)
	if at+size <= a.limit {
		return b
	}
	beyond, below := b, none
	if at < a.limit {
		beyond, below = a.split(b, a.limit-at), b
	}
	a.blocks[beyond].prev = gone
	a.goneUnits += a.size(beyond)
	return below
}

// Gone calls do for every range that is out of use, in order; adjacent ranges are merged. It walks
// all blocks.
func (a *Arena) Gone(do func(off, sizeBytes int64)) {
	begin, end := int64(0), int64(0)
	for b := int32(1); b != none && a.granules > 0; b = a.blocks[b].after {
		if a.blocks[b].prev != gone {
			continue
		}
		if at := a.at(b); at != end {
			if end > begin {
				do(begin*granuleBytes, (end-begin)*granuleBytes)
			}
			begin = at
		}
		end = a.at(b) + a.size(b)
	}
	if end > begin {
		do(begin*granuleBytes, (end-begin)*granuleBytes)
	}
}
