package systems

import (
	"rankpool/scheduler/stager"
)

// heap is a priority queue of places: a binary heap that records the index of each place, so that a
// place can be moved or removed when its rank changes. What less returns for two places in the heap
// may change only if one of them is passed to Fix next. Its memory grows with the largest place.
//
// less(a, b) reports whether a comes out before b. To order samples, not places, let it end with a
// comparison of ids; places that it does not distinguish come out in numerical order.
type heap struct {
	less  func(a, b stager.Place) bool
	order []stager.Place // the heap
	where []int          // by place: 1 + its index in order; 0: not in the heap
}

func newHeap(less func(a, b stager.Place) bool) *heap { return &heap{less: less} }

// Len returns the number of places in the heap.
func (h *heap) Len() int { return len(h.order) }

// Has reports whether p is in the heap.
func (h *heap) Has(p stager.Place) bool { return int(p) < len(h.where) && h.where[p] != 0 }

// Min returns the place that comes out first, or false when there is none.
func (h *heap) Min() (stager.Place, bool) {
	if len(h.order) == 0 {
		return 0, false
	}
	return h.order[0], true
}

// Push adds p, which must not be in the heap.
func (h *heap) Push(p stager.Place) {
	for int(p) >= len(h.where) {
		h.where = append(h.where, 0)
	}
	h.order = append(h.order, p)
	h.where[p] = len(h.order)
	h.up(len(h.order) - 1)
}

// Fix moves p, which must be in the heap, to where it belongs after its rank changed.
func (h *heap) Fix(p stager.Place) {
	i := h.where[p] - 1
	h.up(i)
	h.down(h.where[p] - 1)
}

// Remove removes p, which must be in the heap.
func (h *heap) Remove(p stager.Place) {
	i, last := h.where[p]-1, len(h.order)-1
	h.swap(i, last)
	h.order, h.where[p] = h.order[:last], 0
	if i < last {
		h.Fix(h.order[i])
	}
}

func (h *heap) before(i, j int) bool {
	a, b := h.order[i], h.order[j]
	if h.less(a, b) {
		return true
	}
	return a < b && !h.less(b, a)
}

func (h *heap) swap(i, j int) {
	h.order[i], h.order[j] = h.order[j], h.order[i]
	h.where[h.order[i]], h.where[h.order[j]] = i+1, j+1
}

func (h *heap) up(i int) {
	for i > 0 && h.before(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h *heap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.order); child++ {
			if h.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
