package systems

import (
	"rankpool/scheduler/draw"
)

// quiverBuffer is what Quiver's servers hold. While jobs work on chunk front, it loads chunk back.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.1. Differs: the paper does not say how fast
// a chunk is loaded. Here each batch of b draws loads b samples divided by the number of jobs, so
// that back is complete when the jobs have used up front. Jobs that miss samples of back in the
// meantime load them themselves. Each sample is a separate read, as in a client's "random subset"
// (§5.2), since a chunk's stripe units are not contiguous in storage (§5.1). With option packed
// they are, and each rank reads its part at once. The chunk after back is the next that some job
// has not used up. At the end of the last epoch a chunk is loaded that nobody uses.
type quiverBuffer struct {
	quiverChunks
	memory      *Memory
	jobs        []quiverJob
	mode        quiverMode
	bytes       int64 // of the data set
	pairBytes   int64 // of two chunks
	ranks       int
	patience    int64
	packed      bool // a rank loads its part for a batch in one sequential read
	front, back int
	missing     int // samples of back that are not in memory
	// index in back's members of the next one to load; misses may have loaded later ones
	next   int
	due    int     // answered draws that loaded samples do not match yet
	clock  int64   // batches
	doneAt []int64 // by chunk: 1 + clock when the first job was done with it; 0: none is
	piece  []draw.SampleID
}

func newQuiverBuffer(cfg *PoolConfig) quiverBuffer {
	q := quiverBuffer{
		memory: cfg.Memory, ranks: cfg.Ranks, patience: int64(cfg.Value("patience")),
		packed: cfg.Value("packed") != 0,
	}
	q.bytes = totalBytes(cfg.Samples, q.memory.Size)
	q.quiverChunks, q.pairBytes = quiverFit(cfg.Samples, int(cfg.Value("chunks")), q.memory.Size,
		q.memory.CapacityBytes())
	q.doneAt = make([]int64, len(q.members))
	q.jobs = make([]quiverJob, cfg.Jobs)
	for i := range q.jobs {
		q.jobs[i].chunk = -1
	}
	return q
}

// reset drops everything and starts with the first chunk.
func (q *quiverBuffer) reset(mode quiverMode) {
	for id := range q.of {
		if q.memory.Has(draw.SampleID(id)) {
			q.memory.Drop(draw.SampleID(id))
		}
	}
	q.mode, q.front, q.due = mode, 0, 0
	clear(q.doneAt)
	if mode == quiverChunked {
		q.open(1)
	}
}

// open makes a chunk the one to load.
func (q *quiverBuffer) open(chunk int) {
	q.back, q.missing, q.next, q.doneAt[chunk] = chunk, len(q.members[chunk]), 0, 0
}

// marked reports whether front is marked for eviction: back is complete.
func (q *quiverBuffer) marked() bool { return q.mode == quiverChunked && q.missing == 0 }

// current returns the chunk that new jobs begin with.
func (q *quiverBuffer) current() int {
	if q.marked() {
		return q.back
	}
	return q.front
}

// serves reports whether a look-up by j finds id. With two chunks, a job finds only samples of the
// chunk that it works on: so a batch comes from one chunk, back is whole when jobs get to it, and a
// chunk marked for eviction serves no new jobs.
//
// Source: §5.1.
func (q *quiverBuffer) serves(j *quiverJob, id draw.SampleID) bool {
	return q.memory.Has(id) && (q.mode == quiverFull || int(q.of[id]) == j.chunk)
}

// keep stores a sample that a job read, if its chunk is cached.
func (q *quiverBuffer) keep(id draw.SampleID, rank int32) {
	c := int(q.of[id])
	if q.mode == quiverNone || q.mode == quiverChunked && c != q.front && c != q.back {
		return
	}
	q.memory.Keep(id, rank)
	if q.mode == quiverChunked && c == q.back {
		q.missing--
	}
}

// move marks a job's chunk as done, so that it may be evicted, and moves the job on to the next
// chunk.
//
// Source: Algorithm 1, lines 25 and 31.
func (q *quiverBuffer) move(j *quiverJob) {
	if q.doneAt[j.chunk] == 0 {
		q.doneAt[j.chunk] = q.clock + 1
	}
	j.chunk = (j.chunk + 1) % len(q.members)
	q.turn()
}

// turn evicts front, makes back the front, and opens the chunk that jobs need next. It reports
// whether it did. Front may go once back is complete, a job is done with front or none needs it,
// and either nobody works on it any more or the first job finished it too long ago.
func (q *quiverBuffer) turn() bool {
	users := 0
	for i := range q.jobs {
		if q.jobs[i].chunk == q.front {
			users++
		}
	}
	done := q.doneAt[q.front]
	forced := done > 0 && q.clock-done >= q.patience*q.active()
	if !q.marked() || done == 0 && q.wanted(q.front) || users > 0 && !forced {
		return false
	}
	for _, id := range q.members[q.front] {
		if q.memory.Has(id) {
			q.memory.Drop(id)
		}
	}
	q.front = q.back
	next := (q.front + 1) % len(q.members)
	for c := next; c != q.front; c = (c + 1) % len(q.members) {
		if q.wanted(c) {
			next = c
			break
		}
	}
	q.open(next)
	return true
}

// wanted reports whether some job has not used up a chunk in its epoch, or is between epochs.
func (q *quiverBuffer) wanted(chunk int) bool {
	for i := range q.jobs {
		if j := &q.jobs[i]; j.on && (j.rest[chunk] > 0 || j.unused == 0) {
			return true
		}
	}
	return false
}

// active returns the number of jobs that are cached for.
func (q *quiverBuffer) active() (n int64) {
	for i := range q.jobs {
		if q.jobs[i].on {
			n++
		}
	}
	return n
}

// advance loads what is due after a batch of draws.
func (q *quiverBuffer) advance(draws int) {
	q.clock++
	if q.mode != quiverChunked {
		return
	}
	active := int(max(q.active(), 1))
	q.due += draws
	samples := q.due / active
	q.due %= active
	for samples -= q.load(samples); q.turn(); samples -= q.load(samples) {
	}
}

// load loads the next samples of back that are not in memory, in equal parts on each rank, and
// returns how many it loaded.
func (q *quiverBuffer) load(samples int) int {
	members := q.members[q.back]
	q.piece = q.piece[:0]
	for ; q.next < len(members) && len(q.piece) < samples; q.next++ {
		if !q.memory.Has(members[q.next]) {
			q.piece = append(q.piece, members[q.next])
		}
	}
	for r := range q.ranks {
		n := len(q.piece)
		q.read(q.piece[r*n/q.ranks:(r+1)*n/q.ranks], int32(r))
	}
	q.missing -= len(q.piece)
	return len(q.piece)
}

// read loads a rank's part.
func (q *quiverBuffer) read(ids []draw.SampleID, rank int32) {
	if q.packed {
		q.memory.Load(ids, rank)
		return
	}
	for i := range ids {
		q.memory.Load(ids[i:i+1], rank)
	}
}
