package plan

import (
	"fmt"
	"slices"

	"rankpool/scheduler/draw"
)

// A List is a trainer's part of an epoch, as its script has drawn it: batches of any lengths. A
// trainer may have fewer batches than others, or none. A List does not change.
type List struct {
	Counts []int32         // lengths of the batches, each at least 1
	IDs    []draw.SampleID // of all batches, in order
}

// NewList returns the list whose numbers a trainer has sent: how many batches there are, their
// lengths, then all ids.
//
// It returns an error when the lengths do not add up, a batch is empty, or an id is not below
// samples.
func NewList(numbers []draw.SampleID, samples int) (List, error) {
	batches, rest := uint64(numbers[0]), numbers[1:]
	if batches > uint64(len(rest)) {
		return List{}, fmt.Errorf("a list of %d batches has the lengths of %d", batches, len(rest))
	}
	l := List{Counts: make([]int32, batches), IDs: rest[batches:]}
	draws := uint64(0)
	for b, n := range rest[:batches] {
		if n == 0 {
			return List{}, fmt.Errorf("batch %d has no samples", b)
		}
		draws += uint64(n)
		l.Counts[b] = int32(n)
	}
	if draws != uint64(len(l.IDs)) {
		return List{}, fmt.Errorf("a list whose batches have %d samples has %d ids", draws, len(l.IDs))
	}
	at := slices.IndexFunc(l.IDs, func(id draw.SampleID) bool { return int(id) >= samples })
	if at < 0 {
		return l, nil
	}
	b, first := 0, 0
	for first+int(l.Counts[b]) <= at {
		first += int(l.Counts[b])
		b++
	}
	return List{}, fmt.Errorf("batch %d has sample %d, and the data set has %d: ids must be below "+
		"that", b, l.IDs[at], samples)
}

// Numbers returns what NewList makes the list of.
func (l *List) Numbers() []draw.SampleID {
	numbers := make([]draw.SampleID, 1, 1+len(l.Counts)+len(l.IDs))
	numbers[0] = draw.SampleID(len(l.Counts))
	for _, n := range l.Counts {
		numbers = append(numbers, draw.SampleID(n))
	}
	return append(numbers, l.IDs...)
}

// count is the length of batch b, 0 after the last one.
func (l *List) count(b int) int {
	if b < len(l.Counts) {
		return int(l.Counts[b])
	}
	return 0
}

// ends returns, by global batch, the place after its draws.
func ends(lists []List) (ends []int32) {
	batches := 0
	for _, l := range lists {
		batches = max(batches, len(l.Counts))
	}
	ends, at := make([]int32, batches), 0
	for b := range ends {
		for i := range lists {
			at += lists[i].count(b)
		}
		ends[b] = int32(at)
	}
	return ends
}

// join returns the draws of an epoch: a global batch has the batches of that number of all
// trainers, one trainer's after the other's.
func join(lists []List) []draw.SampleID {
	draws := 0
	for _, l := range lists {
		draws += len(l.IDs)
	}
	ids, next := make([]draw.SampleID, 0, draws), make([]int, len(lists))
	for b := range ends(lists) {
		for t := range lists {
			n := lists[t].count(b)
			ids = append(ids, lists[t].IDs[next[t]:next[t]+n]...)
			next[t] += n
		}
	}
	return ids
}

// assignLists assigns the draws of an epoch that was handed in. AssignSampler gives each trainer
// what it has handed in; with AssignLocal it gets as many draws of a global batch as that.
func (p *Plan) assignLists(lists []List, mode Assignment) {
	p.ends, p.Batch = ends(lists), 1
	for b := range p.ends {
		lo, hi := p.Range(b)
		p.Batch = max(p.Batch, hi-lo)
	}
	var a *assigner
	if mode == AssignLocal {
		a = newAssigner(p.World, p.Ranks, (p.Batch+len(lists)-1)/len(lists), nil)
	}
	for b := range p.ends {
		lo, hi := p.Range(b)
		at := lo
		for t := range lists {
			n := lists[t].count(b)
			for range n {
				p.Consumer[at] = uint16(t)
				at++
			}
			if a != nil {
				a.room[t] = int32(n)
			}
		}
		if a != nil {
			a.batch(p.IDs[lo:hi], p.Consumer[lo:hi])
		}
	}
}
