package scheduler

// Outcome is what a draw finds in a partition.
type Outcome uint8

const (
	// Hit says that the sample is a resident.
	Hit Outcome = iota
	// Admitted says that it was none and is one now.
	Admitted
	// Bypassed says that it was none and stays none.
	Bypassed
)

// Cache is the content of one owner's partition as the policy sees it: which samples are residents, never more
// than capacity bytes. It drives a Policy and does all counting. It is not safe for concurrent use.
type Cache struct {
	policy        Policy
	size          func(SampleID) int64
	capacityBytes int64
	usedBytes     int64
	resident      []bool
	out           []SampleID // residents taken out by the draw under way
	outNext       []float64
}

// NewCache returns an empty partition of capacityBytes over samples 0 … samples-1 of the given sizes.
func NewCache(policy Policy, samples int, capacityBytes int64, size func(SampleID) int64) *Cache {
	return &Cache{policy: policy, size: size, capacityBytes: capacityBytes, resident: make([]bool, samples)}
}

// Resident reports whether id is in the partition.
func (c *Cache) Resident(id SampleID) bool { return c.resident[id] }

// UsedBytes is the sum of the residents' sizes.
func (c *Cache) UsedBytes() int64 { return c.usedBytes }

// Draw records a draw of id that is drawn again at next, and calls evicted for each resident that leaves.
//
// A newcomer is admitted when there is room or when every resident that must leave yields to it.
func (c *Cache) Draw(id SampleID, next float64, evicted func(SampleID)) Outcome {
	if c.resident[id] {
		c.policy.Touch(id, next)
		return Hit
	}
	size := c.size(id)
	if size > c.capacityBytes || !c.makeRoom(size, next) {
		return Bypassed
	}
	for _, v := range c.out {
		evicted(v)
	}
	c.policy.Admit(id, next)
	c.resident[id] = true
	c.usedBytes += size
	return Admitted
}

// makeRoom takes residents out until size bytes fit; if one does not yield, all are put back.
func (c *Cache) makeRoom(size int64, next float64) bool {
	c.out, c.outNext = c.out[:0], c.outNext[:0]
	for c.usedBytes+size > c.capacityBytes {
		v, ok := c.policy.Victim()
		if !ok || !c.policy.Yields(v, next) {
			for i, u := range c.out {
				c.policy.Admit(u, c.outNext[i])
				c.resident[u] = true
				c.usedBytes += c.size(u)
			}
			return false
		}
		c.out, c.outNext = append(c.out, v), append(c.outNext, c.policy.Next(v))
		c.Remove(v)
	}
	return true
}

// Remove takes resident id out.
func (c *Cache) Remove(id SampleID) {
	c.policy.Remove(id)
	c.resident[id] = false
	c.usedBytes -= c.size(id)
}

// Refresh gives id a new prediction if it is a resident.
func (c *Cache) Refresh(id SampleID, next float64) {
	if c.resident[id] {
		c.policy.Refresh(id, next)
	}
}

// Next returns the prediction that resident id is ordered by.
func (c *Cache) Next(id SampleID) float64 { return c.policy.Next(id) }

// RefreshAll gives every resident the prediction that next returns for it.
func (c *Cache) RefreshAll(next func(SampleID) float64) {
	for id, in := range c.resident {
		if in {
			c.policy.Refresh(SampleID(id), next(SampleID(id)))
		}
	}
}
