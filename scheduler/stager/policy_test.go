package stager

// testPolicies are the policies that this package's tests run: one looks ahead, one does not.
var testPolicies = map[string]func() Policy{
	"clairvoyant": func() Policy { return NewClairvoyant() },
	"lru":         func() Policy { return &recency{} },
}

// recency evicts what was drawn longest ago. It looks at all residents, so it is for small tests
// only.
type recency struct {
	clock int
	last  []int // by place; 0: free
}

func (r *recency) Admit(p Place, u Use) {
	for int(p) >= len(r.last) {
		r.last = append(r.last, 0)
	}
	r.Touch(p, u)
}

func (r *recency) Touch(p Place, _ Use) {
	r.clock++
	r.last[p] = r.clock
}

func (r *recency) Refresh(Place, Use) {}

func (r *recency) Remove(p Place) { r.last[p] = 0 }

func (r *recency) Victim() (victim Place, ok bool) {
	for p, at := range r.last {
		if at > 0 && (!ok || at < r.last[victim]) {
			victim, ok = Place(p), true
		}
	}
	return victim, ok
}

func (r *recency) Yields(Place, Use) bool { return true }
