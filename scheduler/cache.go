package scheduler

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
	size          func(SampleID) int64
	capacityBytes int64
	usedBytes     int64
	place         table[Place] // of the residents, from 1
	uses          []Use        // by place
	free          []Place
	out           []Use // residents taken out by the draw under way
	kept          func(id SampleID, kept bool)
}

// NewCache returns an empty partition of capacityBytes over samples of the given sizes.
func NewCache(policy Policy, capacityBytes int64, size func(SampleID) int64) *Cache {
	c := &Cache{policy: policy, size: size, capacityBytes: capacityBytes, place: sparseTable[Place](0)}
	c.gate, _ = policy.(Gate)
	return c
}

// Resident reports whether id is in the partition.
func (c *Cache) Resident(id SampleID) bool {
	return c.place.get(id) != 0
}

// at returns the place of a resident, or false.
func (c *Cache) at(id SampleID) (Place, bool) {
	p := c.place.get(id)
	return p - 1, p != 0
}

// fits reports whether id could be admitted without an eviction.
func (c *Cache) fits(id SampleID) bool { return c.usedBytes+c.size(id) <= c.capacityBytes }

// Len returns the number of residents.
func (c *Cache) Len() int { return len(c.uses) - len(c.free) }

// UsedBytes returns the sum of the residents' sizes.
func (c *Cache) UsedBytes() int64 { return c.usedBytes }

// Resize changes the capacity and calls evicted for each resident that leaves. A policy that names
// no victim keeps its residents until they leave.
func (c *Cache) Resize(capacityBytes int64, evicted func(SampleID)) {
	c.capacityBytes = capacityBytes
	for c.usedBytes > capacityBytes {
		v, ok := c.policy.Victim()
		if !ok {
			return
		}
		id := c.uses[v].ID
		c.Remove(id)
		evicted(id)
	}
}

// Draw records a draw and calls evicted for each resident that leaves.
//
// A newcomer is admitted when there is room or when every resident that must leave yields to it.
func (c *Cache) Draw(u Use, evicted func(SampleID)) Outcome {
	if p, in := c.at(u.ID); in {
		c.uses[p] = u
		c.policy.Touch(p, u)
		return Hit
	}
	size := c.size(u.ID)
	if size > c.capacityBytes || c.gate != nil && !c.gate.Keeps(u) || !c.makeRoom(size, u) {
		return Bypassed
	}
	for _, v := range c.out {
		evicted(v.ID)
	}
	c.admit(u)
	return Admitted
}

// Leaving returns the Use of a leaving resident; only evicted may call it, for the resident that it
// is called with.
func (c *Cache) Leaving(id SampleID) Use {
	for _, u := range c.out {
		if u.ID == id {
			return u
		}
	}
	panic("scheduler: Leaving of a sample that does not leave.")
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
	if c.usedBytes+size <= c.capacityBytes {
		return true
	}
	v, ok := c.policy.Victim()
	return ok && c.policy.Yields(v, u)
}

// makeRoom removes residents until size bytes fit; if one does not yield, all are restored.
func (c *Cache) makeRoom(size int64, newcomer Use) bool {
	c.out = c.out[:0]
	for c.usedBytes+size > c.capacityBytes {
		v, ok := c.policy.Victim()
		if !ok || !c.policy.Yields(v, newcomer) {
			for _, u := range c.out {
				c.admit(u)
			}
			return false
		}
		c.out = append(c.out, c.uses[v])
		c.Remove(c.uses[v].ID)
	}
	return true
}

func (c *Cache) admit(u Use) {
	p := Place(len(c.uses))
	if n := len(c.free); n > 0 {
		p, c.free = c.free[n-1], c.free[:n-1]
		c.uses[p] = u
	} else {
		c.uses = append(c.uses, u)
	}
	c.place.set(u.ID, p+1)
	c.usedBytes += c.size(u.ID)
	c.policy.Admit(p, u)
	c.noteKept(u.ID, true)
}

func (c *Cache) noteKept(id SampleID, kept bool) {
	if c.kept != nil {
		c.kept(id, kept)
	}
}

// Remove takes resident id out.
func (c *Cache) Remove(id SampleID) {
	p, _ := c.at(id)
	c.policy.Remove(p)
	c.place.set(id, 0)
	c.free = append(c.free, p)
	c.usedBytes -= c.size(id)
	c.noteKept(id, false)
}

// Refresh replaces the Use of u's sample if it is a resident.
func (c *Cache) Refresh(u Use) {
	if p, in := c.at(u.ID); in {
		c.uses[p] = u
		c.policy.Refresh(p, u)
	}
}

// Next returns the prediction of id's next draw, or false if it is not a resident.
func (c *Cache) Next(id SampleID) (float64, bool) {
	p, in := c.at(id)
	if !in {
		return 0, false
	}
	return c.uses[p].Next, true
}

// Residents returns the Uses of the residents, in order of places. The caller owns the slice.
func (c *Cache) Residents() []Use {
	all := make([]Use, 0, c.Len())
	for p, u := range c.uses {
		if q, in := c.at(u.ID); in && q == Place(p) {
			all = append(all, u)
		}
	}
	return all
}

// RefreshAll replaces the Use of every resident by the result of use, in order of places.
func (c *Cache) RefreshAll(use func(SampleID) Use) {
	for p, u := range c.uses {
		if q, in := c.at(u.ID); in && q == Place(p) {
			c.uses[p] = use(u.ID)
			c.policy.Refresh(Place(p), c.uses[p])
		}
	}
}
