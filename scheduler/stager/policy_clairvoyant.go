package stager

import (
	"rankpool/scheduler/plan"
)

// Clairvoyant is Bélády's MIN with bypass over known and predicted next uses: the resident whose
// next use is farthest goes first, and a newcomer that is needed later than every resident is not
// kept at all.
//
// Source: Belady, IBM Systems Journal 1966 (MIN); bypass as in McFarling, ISCA 1992.
// Differs: beyond the planned epoch the next use is predicted by the sample's own race clock.
type Clairvoyant struct {
	of *residents // of its cache
	// A max-heap by next use, built when it is first needed: if all samples fit, there is none.
	heap []Place
	at   []int32 // place in heap, by resident; nil without a heap
}

// NewClairvoyant returns a policy for one Cache.
func NewClairvoyant() *Clairvoyant { return &Clairvoyant{} }

// lookAt implements LookAhead.
func (c *Clairvoyant) lookAt(of *residents) { c.of = of }

// Admit implements Policy.
func (c *Clairvoyant) Admit(p Place, _ Use) {
	if c.at == nil {
		return
	}
	for int(p) >= len(c.at) {
		c.at = append(c.at, 0)
	}
	c.at[p] = int32(len(c.heap))
	c.heap = append(c.heap, p)
	c.up(len(c.heap) - 1)
}

// Touch implements Policy.
func (c *Clairvoyant) Touch(p Place, u Use) { c.Refresh(p, u) }

// Refresh implements Policy.
func (c *Clairvoyant) Refresh(p Place, _ Use) {
	if c.at == nil {
		return
	}
	if i := int(c.at[p]); !c.up(i) {
		c.down(i)
	}
}

// Remove implements Policy.
func (c *Clairvoyant) Remove(p Place) {
	if c.at == nil {
		return
	}
	i, last := int(c.at[p]), len(c.heap)-1
	c.swap(i, last)
	c.heap = c.heap[:last]
	if i < last && !c.up(i) {
		c.down(i)
	}
}

// order builds the heap, unless there is one.
func (c *Clairvoyant) order() {
	if c.at != nil {
		return
	}
	places := len(c.of.ids)
	c.at = make([]int32, places, cap(c.of.ids))
	for _, p := range c.of.free {
		c.at[p] = plan.NoPlace
	}
	c.heap = make([]Place, 0, cap(c.of.ids))
	for p := range places {
		if c.at[p] != plan.NoPlace {
			c.at[p] = int32(len(c.heap))
			c.heap = append(c.heap, Place(p))
		}
	}
	for i := len(c.heap)/2 - 1; i >= 0; i-- {
		c.down(i)
	}
}

// Victim implements Policy.
func (c *Clairvoyant) Victim() (Place, bool) {
	if c.order(); len(c.heap) == 0 {
		return 0, false
	}
	return c.heap[0], true
}

// Yields implements Policy.
func (c *Clairvoyant) Yields(victim Place, newcomer Use) bool {
	return newcomer.Next < c.of.next[victim]
}

// before orders the heap: the farther use first, ties by id, so that every rank and every run
// agrees.
func (c *Clairvoyant) before(i, j int) bool {
	p, q := c.heap[i], c.heap[j]
	if a, b := c.of.next[p], c.of.next[q]; a != b {
		return a > b
	}
	return c.of.ids[p] < c.of.ids[q]
}

func (c *Clairvoyant) swap(i, j int) {
	c.heap[i], c.heap[j] = c.heap[j], c.heap[i]
	c.at[c.heap[i]], c.at[c.heap[j]] = int32(i), int32(j)
}

func (c *Clairvoyant) up(i int) bool {
	moved := false
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(i, parent) {
			break
		}
		c.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (c *Clairvoyant) down(i int) {
	for {
		first := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(c.heap) && c.before(child, first) {
				first = child
			}
		}
		if first == i {
			return
		}
		c.swap(i, first)
		i = first
	}
}
