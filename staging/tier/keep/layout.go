package keep

import (
	"sort"

	"rankpool/scheduler/draw"
)

const (
	// groupBytes is the size of a group of a large data set: a file of this size is written and
	// read at the disk's full speed, and 1 TB of copies are 15,000 files.
	groupBytes = 64 << 20
	// groupBytesMin bounds it for small data sets, which are divided into 64 groups.
	groupBytesMin = 1 << 20
	groupsMin     = 64
)

// A layout maps each sample that a rank owns to its place. Samples are numbered as slots, in the
// order of their ids. It is the same for all jobs with the same data set and number of ranks.
type layout struct {
	block, rank, ranks int
	offset             []uint32 // of each slot in its group, which ends with the sample that fills it
	first              []int    // the first slot of each group, and then the number of slots
	bytes              []int64  // of each group
}

func newLayout(samples, block, rank, ranks int, size func(draw.SampleID) int64) layout {
	total := int64(0)
	own := func(do func(bytes int64)) {
		for id := range draw.SampleID(samples) {
			if draw.OwnerOfBlock(id, block, ranks) == rank {
				do(size(id))
			}
		}
	}
	own(func(bytes int64) { total += bytes })
	target := min(groupBytes, max(groupBytesMin, total/groupsMin))
	l := layout{block: block, rank: rank, ranks: ranks, offset: make([]uint32, 0, samples/ranks+1)}
	own(func(bytes int64) {
		last := len(l.bytes) - 1
		if last < 0 || l.bytes[last] >= target {
			l.first, l.bytes = append(l.first, len(l.offset)), append(l.bytes, 0)
			last++
		}
		l.offset = append(l.offset, uint32(l.bytes[last]))
		l.bytes[last] += bytes
	})
	l.first = append(l.first, len(l.offset))
	return l
}

// slots returns how many samples the rank owns.
func (l *layout) slots() int { return len(l.offset) }

// groups returns how many groups there are.
func (l *layout) groups() int { return len(l.bytes) }

// slot returns the slot of a sample, or false if another rank owns it. Of ranks consecutive
// blocks, each rank owns one (draw.Owner).
func (l *layout) slot(id draw.SampleID) (int, bool) {
	slot := int(id)/l.block/l.ranks*l.block + int(id)%l.block
	return slot, slot < l.slots() && draw.OwnerOfBlock(id, l.block, l.ranks) == l.rank
}

// group returns the group that a slot is in.
func (l *layout) group(slot int) int { return sort.SearchInts(l.first, slot+1) - 1 }

// size returns the bytes of a slot's sample.
func (l *layout) size(slot int) int64 {
	if g := l.group(slot); slot+1 == l.first[g+1] {
		return l.bytes[g] - int64(l.offset[slot])
	}
	return int64(l.offset[slot+1]) - int64(l.offset[slot])
}
