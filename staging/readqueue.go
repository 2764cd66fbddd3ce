package staging

import "rankpool/scheduler"

// A read is one call of Fetch. Its fields need and place are the Fetcher's lock's; tries is its reader's.
type read struct {
	id    scheduler.SampleID
	into  []byte
	need  uint64
	done  func(error)
	seq   uint64 // order of asking
	tries int    // so far

	place  int   // in the queue; -1: not there
	sameID *read // the next read of the same sample
}

// A readQueue is a heap of reads (container/heap): the least need first, equal ones in the order of asking.
type readQueue []*read

func (q readQueue) Len() int { return len(q) }

func (q readQueue) Less(i, j int) bool {
	if q[i].need != q[j].need {
		return q[i].need < q[j].need
	}
	return q[i].seq < q[j].seq
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
	r.place = -1
	return r
}

// readsByID finds reads by their sample. Almost always there is one; more hang on its sameID.
type readsByID map[scheduler.SampleID]*read

func (b readsByID) add(r *read) {
	r.sameID = b[r.id]
	b[r.id] = r
}

// remove takes r out, if it is there.
func (b readsByID) remove(r *read) {
	if b[r.id] == r {
		if r.sameID == nil {
			delete(b, r.id)
		} else {
			b[r.id] = r.sameID
		}
		return
	}
	for before := b[r.id]; before != nil; before = before.sameID {
		if before.sameID == r {
			before.sameID = r.sameID
			return
		}
	}
}
