package storage

import (
	"cmp"
	"container/heap"
	"slices"

	"rankpool/scheduler/draw"
)

// A read is one call of Fetch. The Fetcher's lock guards fields that change.
type read struct {
	id       draw.SampleID
	into     []byte
	need     uint64
	done     func(error)
	seq      uint64 // order of the calls
	from, to int64  // where its bytes are in the file, including the gaps between them
	target   *target
	shard    *shard // nil if the sample is a whole file
	tries    int    // so far; a read that failed is not coalesced again

	place int // index in the target's queue
}

// A target holds what one storage target (a Lustre OST, a BeeGFS target) has to read: the waiting
// reads, and how many are in flight.
type target struct {
	id       int // -1: unknown
	queue    readQueue
	place    int // index in queues.waiting, while its queue is not empty
	underWay int
}

// A shard is one file that holds many samples.
type shard struct {
	path  string
	reads []*read // waiting reads, in file order
	asked int     // reads that are not done
}

// queues holds every waiting read, in the order of need per target.
type queues struct {
	targets map[int]*target
	waiting []*target // targets with waiting reads
	shards  map[string]*shard
}

func newQueues() queues {
	return queues{targets: make(map[int]*target), shards: make(map[string]*shard)}
}

// target returns the target with an id.
func (q *queues) target(id int) *target {
	t := q.targets[id]
	if t == nil {
		t = &target{id: id}
		q.targets[id] = t
	}
	return t
}

// join returns the shard with a path, which is kept until as many reads have left it as joined it.
func (q *queues) join(path string) *shard {
	s := q.shards[path]
	if s == nil {
		s = &shard{path: path}
		q.shards[path] = s
	}
	s.asked++
	return s
}

// leave undoes join; nil is no shard.
func (q *queues) leave(s *shard) {
	if s == nil {
		return
	}
	if s.asked--; s.asked == 0 {
		delete(q.shards, s.path)
	}
}

// push adds r to the waiting reads.
func (q *queues) push(r *read) {
	t := r.target
	if len(t.queue) == 0 {
		t.place = len(q.waiting)
		q.waiting = append(q.waiting, t)
	}
	heap.Push(&t.queue, r)
	if s := r.shard; s != nil {
		at, _ := slices.BinarySearchFunc(s.reads, r, inFile)
		s.reads = slices.Insert(s.reads, at, r)
	}
}

// remove removes r from the waiting reads.
func (q *queues) remove(r *read) {
	t := r.target
	heap.Remove(&t.queue, r.place)
	if len(t.queue) == 0 {
		last := q.waiting[len(q.waiting)-1]
		q.waiting[t.place], last.place = last, t.place
		q.waiting = q.waiting[:len(q.waiting)-1]
	}
	if s := r.shard; s != nil {
		at, _ := slices.BinarySearchFunc(s.reads, r, inFile)
		s.reads = slices.Delete(s.reads, at, at+1)
	}
}

// inFile orders reads of one file by their place in it; no two are equal.
func inFile(a, b *read) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.seq, b.seq))
}

// first returns the next read, or nil: the most urgent one whose target has fewer than perTarget
// reads in flight. Among reads of equal need, those of the target with the fewest in flight come
// first, so that the reads of a batch spread over its targets, then those requested first.
// mostUrgent is the least need of all waiting reads. Reads with an unknown target are not bounded.
func (q *queues) first(perTarget int) (r *read, mostUrgent uint64) {
	mostUrgent = ^uint64(0)
	for _, t := range q.waiting {
		head := t.queue[0]
		mostUrgent = min(mostUrgent, head.need)
		if t.id >= 0 && t.underWay >= perTarget {
			continue
		}
		if r == nil || head.before(r) {
			r = head
		}
	}
	return r, mostUrgent
}

// before reports whether r is read before s, of another target.
func (r *read) before(s *read) bool {
	switch {
	case r.need != s.need:
		return r.need < s.need
	case r.target.underWay != s.target.underWay:
		return r.target.underWay < s.target.underWay
	default:
		return r.seq < s.seq
	}
}

// A readQueue is a heap of reads (container/heap): the least need first, equal ones in the order of
// the calls.
type readQueue []*read

func (q readQueue) Len() int { return len(q) }

func (q readQueue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].need, q[j].need), cmp.Compare(q[i].seq, q[j].seq)) < 0
}

func (q readQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push appends x, a *read, for container/heap.
func (q *readQueue) Push(x any) {
	r := x.(*read)
	r.place = len(*q)
	*q = append(*q, r)
}

// Pop removes the last element, for container/heap.
func (q *readQueue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}
