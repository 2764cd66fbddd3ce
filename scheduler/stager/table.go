package stager

import (
	"math/bits"

	"rankpool/scheduler/draw"
)

// table maps samples to small values; the zero value means none. A dense table has room for every
// sample, a sparse one for what is in it: it is a hash table with linear probing, in which
// deletions leave no gaps.
//
// Source: Knuth, "The Art of Computer Programming", volume 3, §6.4, Algorithms L and R.
type table[V comparable] struct {
	dense []V
	slots []slot[V] // a power of two of them; nil in a dense table
	shift int       // of a hash, to a place in slots
	used  int
}

type slot[V comparable] struct {
	id    draw.SampleID
	value V
}

const (
	// A table is dense if at least one in denseShare samples has a value: that takes less memory then.
	denseShare = 4
	slotsMin   = 16
	// spread is 2^64 divided by the golden ratio, odd: a product with it spreads ids.
	spread = 0x9e3779b97f4a7c15
)

// newTable returns an empty table for samples 0 ≤ id < samples, of which about held have a value at
// a time.
func newTable[V comparable](samples, held int) table[V] {
	if held >= samples/denseShare {
		return table[V]{dense: make([]V, samples)}
	}
	return sparseTable[V](held)
}

// sparseTable returns an empty table for about held values. It grows.
func sparseTable[V comparable](held int) (t table[V]) {
	t.resize(max(slotsMin, 1<<bits.Len(uint(held+held/2))))
	return t
}

func (t *table[V]) resize(slots int) {
	old := t.slots
	t.slots, t.shift, t.used = make([]slot[V], slots), 64-bits.Len(uint(slots-1)), 0
	for _, s := range old {
		var none V
		if s.value != none {
			t.set(s.id, s.value)
		}
	}
}

func (t *table[V]) get(id draw.SampleID) V {
	if t.dense != nil {
		return t.dense[id]
	}
	return t.slots[t.find(id)].value
}

func (t *table[V]) set(id draw.SampleID, v V) {
	if t.dense != nil {
		t.dense[id] = v
		return
	}
	var none V
	i := t.find(id)
	switch here := t.slots[i].value != none; {
	case v == none && here:
		t.delete(i)
	case v != none && !here:
		if t.used++; t.used > len(t.slots)/4*3 {
			t.resize(2 * len(t.slots))
			t.used++
			i = t.find(id)
		}
		fallthrough
	case v != none:
		t.slots[i] = slot[V]{id, v}
	}
}

// at is the first place to look for a sample.
func (t *table[V]) at(id draw.SampleID) int { return int((uint64(id) + 1) * spread >> t.shift) }

// find returns the place of a sample, or the free one where it would be.
func (t *table[V]) find(id draw.SampleID) int {
	var none V
	i := t.at(id)
	for t.slots[i].value != none && t.slots[i].id != id {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

// delete empties a place, and moves up the entries that it had displaced.
func (t *table[V]) delete(i int) {
	var none V
	mask := len(t.slots) - 1
	for j := i; ; {
		j = (j + 1) & mask
		if t.slots[j].value == none {
			break
		}
		if from := t.at(t.slots[j].id); (j-from)&mask >= (j-i)&mask {
			t.slots[i], i = t.slots[j], j
		}
	}
	t.slots[i] = slot[V]{}
	t.used--
}
