package plan

import (
	"fmt"
	"math"

	"rankpool/scheduler/draw"
)

// Assign gives every draw of an epoch a trainer: consumer[i] is the trainer, 0 … W-1, that consumes
// ids[i].
//
// world has the rank of each of the W trainers, below ranks; a global batch is batchSize · W draws,
// and each trainer gets batchSize of them. Of a partial global batch, trainer t gets as many as
// there are places j with j mod W = t.
//
// AssignSampler gives place j of a global batch to trainer j mod W. AssignLocal gives the draws to
// the trainers of their owner first; if an owner has more draws than its trainers can take, some
// with a low prefer leave (the least likely residents among the first few; the later place in a
// tie; NaN is lowest) and go, in order, to the trainers that have room, in order. prefer may be
// nil. The owner of a sample of several pieces is the rank that owns most of its bytes.
//
// The work is O(1) per draw, and memory is allocated once per call. Assign panics if consumer and
// ids differ in length, a number is not positive, or a trainer's rank is out of range.
//
// Source: Yang and Cong, "Accelerating Data Loading in Deep Neural Network Training", HiPC 2019
// (locality-aware loading): gradients are summed over the global batch, so who consumes a draw is
// free.
func Assign(ids []draw.SampleID, world []int32, ranks, batchSize int, mode Assignment,
	pieces *Pieces, prefer func(id draw.SampleID) float32, consumer []uint16,
) {
	if len(consumer) != len(ids) || len(world) == 0 || ranks < 1 || batchSize < 1 {
		panic(fmt.Sprintf("scheduler: Assign got %d draws, %d consumers, %d trainers, %d ranks, "+
			"batch size %d.", len(ids), len(consumer), len(world), ranks, batchSize))
	}
	if mode == AssignSampler {
		for i := range consumer {
			consumer[i] = uint16(i % len(world))
		}
		return
	}
	a := newAssigner(world, ranks, batchSize, prefer)
	a.pieces = pieces
	for global := batchSize * len(world); len(ids) > 0; {
		n := min(global, len(ids))
		a.share(n)
		a.batch(ids[:n], consumer[:n])
		ids, consumer = ids[n:], consumer[n:]
	}
}

// assigner assigns one global batch after another with the same scratch memory.
type assigner struct {
	prefer   func(id draw.SampleID) float32
	pieces   *Pieces // nil: a sample is one piece
	ranks    int
	trainers []int32 // in the order of their ranks
	first    []int32 // trainers[first[r]:first[r+1]] are rank r's

	room  []int32 // free places of each trainer
	space []int32 // free places of each rank's trainers, at the batch's beginning
	count []int32 // draws of each owner
	// by rank: its next trainer with room, as a place in trainers; before that, its next place in keys
	at    []int32
	until []int32  // by rank: the end of its places in keys
	owner []int32  // of each draw
	moved []bool   // of each draw: it leaves its owner
	keys  []uint64 // the draws of owners that overflow: (-prefer, place), grouped by owner
}

func newAssigner(
	world []int32, ranks, batchSize int, prefer func(id draw.SampleID) float32,
) *assigner {
	global := batchSize * len(world)
	a := &assigner{
		prefer:   prefer,
		ranks:    ranks,
		trainers: make([]int32, len(world)),
		first:    make([]int32, ranks+1),
		room:     make([]int32, len(world)),
		space:    make([]int32, ranks),
		count:    make([]int32, ranks),
		at:       make([]int32, ranks),
		until:    make([]int32, ranks),
		owner:    make([]int32, global),
		moved:    make([]bool, global),
		keys:     make([]uint64, global),
	}
	if prefer == nil {
		a.prefer = func(draw.SampleID) float32 { return 0 }
	}
	for _, r := range world {
		if r < 0 || int(r) >= ranks {
			panic(fmt.Sprintf("scheduler: Assign got a trainer on rank %d of %d.", r, ranks))
		}
		a.first[r+1]++
	}
	for r := range ranks {
		a.first[r+1] += a.first[r]
	}
	copy(a.at, a.first)
	for t, r := range world {
		a.trainers[a.at[r]] = int32(t)
		a.at[r]++
	}
	return a
}

// share gives each trainer an equal share of a batch of n draws.
func (a *assigner) share(n int) {
	each, more := int32(n/len(a.room)), n%len(a.room)
	for t := range a.room {
		a.room[t] = each
		if t < more {
			a.room[t]++
		}
	}
}

// batch assigns the draws of one global batch, for which room was set.
func (a *assigner) batch(ids []draw.SampleID, consumer []uint16) {
	a.open()
	for i, id := range ids {
		r := int32(a.ownerOf(id))
		a.owner[i] = r
		a.count[r]++
	}
	a.overflow(ids)
	copy(a.at, a.first)
	for i := range ids {
		if !a.moved[i] {
			r := a.owner[i]
			consumer[i] = a.take(&a.at[r])
		}
	}
	at := int32(0)
	for i := range consumer {
		if a.moved[i] {
			consumer[i], a.moved[i] = a.take(&at), false
		}
	}
}

func (a *assigner) ownerOf(id draw.SampleID) int {
	if a.pieces != nil {
		return a.pieces.owner(id, a.ranks)
	}
	return draw.Owner(id, a.ranks)
}

// open sets the free places of ranks, from those of their trainers, and the counts of owners to
// zero.
func (a *assigner) open() {
	for r := range a.ranks {
		a.count[r], a.space[r] = 0, 0
		for _, t := range a.trainers[a.first[r]:a.first[r+1]] {
			a.space[r] += a.room[t]
		}
	}
}

// take returns the first trainer with room from place *at of trainers on, and uses up one of its
// free places.
func (a *assigner) take(at *int32) uint16 {
	for a.room[a.trainers[*at]] == 0 {
		*at++
	}
	t := a.trainers[*at]
	a.room[t]--
	return uint16(t)
}

// overflow marks the draws that leave their owners, where an owner has more draws than space: the
// least preferred of its first few. Looking at all of them would cost a random memory read per
// draw, and gain little.
func (a *assigner) overflow(ids []draw.SampleID) {
	end := int32(0)
	for r, n := range a.count {
		a.at[r] = end
		if n > a.space[r] {
			end += candidates(n, a.space[r])
		}
		a.until[r] = end
	}
	if end == 0 {
		return
	}
	for i, r := range a.owner[:len(ids)] {
		if a.at[r] < a.until[r] {
			a.keys[a.at[r]] = uint64(i)
			a.at[r]++
		}
	}
	// apart from the loop above, since a processor looks ahead to more of these random reads then
	for j, i := range a.keys[:end] {
		a.keys[j] = uint64(^preferKey(a.prefer(ids[i])))<<32 | i
	}
	for r, n := range a.count {
		if space := a.space[r]; n > space {
			k := candidates(n, space)
			keys := a.keys[a.until[r]-k : a.until[r]]
			stay := k - (n - space)
			selectSmallest(keys, int(stay))
			for _, key := range keys[stay:] {
				a.moved[uint32(key)] = true
			}
		}
	}
}

// candidates is how many of an owner's n draws are looked at to find the n - space that leave.
func candidates(n, space int32) int32 { return min(n, 3*(n-space)+4) }

// preferKey maps a preference to an integer with the same order; NaN is lowest.
func preferKey(f float32) uint32 {
	if f != f {
		f = float32(math.Inf(-1))
	}
	return draw.Sortable(f)
}

// selectSmallest reorders distinct keys so that the n smallest come first, in any order. It takes
// linear time on average (Hoare's quickselect).
func selectSmallest(keys []uint64, n int) {
	for n > 0 && n < len(keys) {
		last := len(keys) - 1
		keys[last], keys[last/2] = keys[last/2], keys[last]
		pivot, less := keys[last], 0
		for i, key := range keys[:last] {
			if key < pivot {
				keys[i], keys[less] = keys[less], key
				less++
			}
		}
		keys[less], keys[last] = pivot, keys[less]
		if n <= less {
			keys = keys[:less]
		} else {
			keys, n = keys[less+1:], n-less-1
		}
	}
}
