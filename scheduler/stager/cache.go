package stager

import (
	"rankpool/scheduler/draw"
)

// Outcome is what a draw finds in a partition.
type Outcome uint8

const (
	// Hit reports that the sample is a resident.
	Hit Outcome = iota
	// Admitted reports that the sample was not a resident and is one now.
	Admitted
	// Bypassed reports that the sample was not a resident and does not become one.
	Bypassed
)

// Cache is the content of one owner's partition as the policy sees it: which samples are residents,
// never more than capacity bytes. It drives a Policy and does all counting. Its memory grows with
// the residents, not with the data set. It is not safe for concurrent use.
type Cache struct {
	policy        Policy
	gate          Gate // the policy, if it is one
	size          func(draw.SampleID) int64
	capacityBytes int64
	usedBytes     int64
	place         table[Place] // of the residents, from 1
	residents     residents
	out           []Use // residents removed by the draw under way
	kept          func(id draw.SampleID, kept bool)
}

// residents is what a cache knows of its residents, by place.
type residents struct {
	ids  []draw.SampleID
	next []float64
	// scores has the rest of each Use; nil under a LookAhead, which does not need it.
	scores []score
	free   []Place // where no resident is
}

type score struct {
	latest float32
	known  bool
}

// reserve makes room for the given number of residents, so that no array has to be copied as they
// come in.
func (r *residents) reserve(places int) {
	r.ids, r.next = make([]draw.SampleID, 0, places), make([]float64, 0, places)
	if r.scores != nil {
		r.scores = make([]score, 0, places)
	}
}

// add returns a place for a new resident.
func (r *residents) add(u Use) Place {
	if last := len(r.free) - 1; last >= 0 {
		p := r.free[last]
		r.free = r.free[:last]
		r.set(p, u)
		return p
	}
	r.ids, r.next = append(r.ids, u.ID), append(r.next, u.Next)
	if r.scores != nil {
		r.scores = append(r.scores, score{u.Score, u.Known})
	}
	return Place(len(r.ids) - 1)
}

func (r *residents) set(p Place, u Use) {
	r.ids[p], r.next[p] = u.ID, u.Next
	if r.scores != nil {
		r.scores[p] = score{u.Score, u.Known}
	}
}

// use returns what set was last given, without the score under a LookAhead.
func (r *residents) use(p Place) Use {
	u := Use{ID: r.ids[p], Next: r.next[p]}
	if r.scores != nil {
		u.Score, u.Known = r.scores[p].latest, r.scores[p].known
	}
	return u
}

// NewCache returns an empty partition of capacityBytes over samples of the given sizes.
func NewCache(policy Policy, capacityBytes int64, size func(draw.SampleID) int64) *Cache {
	c := &Cache{policy: policy, size: size, capacityBytes: capacityBytes, place: sparseTable[Place](0)}
	c.gate, _ = policy.(Gate)
	if l, ok := policy.(LookAhead); ok {
		l.lookAt(&c.residents)
	} else {
		c.residents.scores = []score{}
	}
	return c
}

// Resident reports whether id is in the partition.
func (c *Cache) Resident(id draw.SampleID) bool { return c.place.get(id) != 0 }

// at returns the place of a resident, or false.
func (c *Cache) at(id draw.SampleID) (Place, bool) {
	p := c.place.get(id)
	return p - 1, p != 0
}

// fits reports whether a sample of size bytes could be admitted without an eviction.
func (c *Cache) fits(size int64) bool { return c.usedBytes+size <= c.capacityBytes }

// Len returns the number of residents.
func (c *Cache) Len() int { return len(c.residents.ids) - len(c.residents.free) }

// UsedBytes returns the sum of the residents' sizes.
func (c *Cache) UsedBytes() int64 { return c.usedBytes }

// Resize changes the capacity and calls evicted for each resident that leaves. A policy that names
// no victim keeps its residents until they leave.
func (c *Cache) Resize(capacityBytes int64, evicted func(draw.SampleID)) {
	c.capacityBytes = capacityBytes
	for c.usedBytes > capacityBytes {
		v, ok := c.policy.Victim()
		if !ok {
			return
		}
		id := c.residents.ids[v]
		c.Remove(id)
		evicted(id)
	}
}

// Draw records a draw and calls evicted for each resident that leaves.
//
// A newcomer is admitted when there is room or when every resident that must leave yields to it.
func (c *Cache) Draw(u Use, evicted func(draw.SampleID)) Outcome {
	return c.draw(u, func(v Use) { evicted(v.ID) })
}

// draw is Draw, and tells evicted all that was known of a resident that leaves.
func (c *Cache) draw(u Use, evicted func(Use)) Outcome {
	if p, in := c.at(u.ID); in {
		c.residents.set(p, u)
		c.policy.Touch(p, u)
		return Hit
	}
	size := c.size(u.ID)
	if size > c.capacityBytes || c.gate != nil && !c.gate.Keeps(u) || !c.makeRoom(size, u) {
		return Bypassed
	}
	for _, v := range c.out {
		evicted(v)
	}
	c.admit(u)
	return Admitted
}

// Wants reports whether a draw would find the sample or keep it, if it came now. It looks at the
// first victim only.
func (c *Cache) Wants(u Use) bool {
	if c.Resident(u.ID) {
		return true
	}
	size := c.size(u.ID)
	if size > c.capacityBytes || c.gate != nil && !c.gate.Keeps(u) {
		return false
	}
	if c.fits(size) {
		return true
	}
	v, ok := c.policy.Victim()
	return ok && c.policy.Yields(v, u)
}

// makeRoom removes residents until size bytes fit; if one does not yield, all are restored.
func (c *Cache) makeRoom(size int64, newcomer Use) bool {
	c.out = c.out[:0]
	for !c.fits(size) {
		v, ok := c.policy.Victim()
		if !ok || !c.policy.Yields(v, newcomer) {
			for _, u := range c.out {
				c.admit(u)
			}
			return false
		}
		c.out = append(c.out, c.residents.use(v))
		c.Remove(c.residents.ids[v])
	}
	return true
}

func (c *Cache) admit(u Use) {
	p := c.residents.add(u)
	c.place.set(u.ID, p+1)
	c.usedBytes += c.size(u.ID)
	c.policy.Admit(p, u)
	c.noteKept(u.ID, true)
}

func (c *Cache) noteKept(id draw.SampleID, kept bool) {
	if c.kept != nil {
		c.kept(id, kept)
	}
}

// Remove removes resident id.
func (c *Cache) Remove(id draw.SampleID) {
	p, _ := c.at(id)
	c.policy.Remove(p)
	c.place.set(id, 0)
	c.residents.free = append(c.residents.free, p)
	c.usedBytes -= c.size(id)
	c.noteKept(id, false)
}

// Refresh replaces the Use of u's sample if it is a resident.
func (c *Cache) Refresh(u Use) {
	if p, in := c.at(u.ID); in {
		c.residents.set(p, u)
		c.policy.Refresh(p, u)
	}
}

// Next returns the prediction of id's next draw, or false if it is not a resident.
func (c *Cache) Next(id draw.SampleID) (float64, bool) {
	p, in := c.at(id)
	if !in {
		return 0, false
	}
	return c.residents.next[p], true
}

// RefreshAll replaces the Use of every resident by the result of use, in order of places; use gets
// what was known of the sample's next draw.
func (c *Cache) RefreshAll(use func(id draw.SampleID, next float64) Use) {
	for p, id := range c.residents.ids {
		if q, in := c.at(id); in && q == Place(p) {
			u := use(id, c.residents.next[p])
			c.residents.set(q, u)
			c.policy.Refresh(q, u)
		}
	}
}

// nobody is told of evictions.
func nobody(draw.SampleID) {}
