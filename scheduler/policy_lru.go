package scheduler

// lru evicts the resident whose last draw is longest ago and keeps every newcomer.
type lru struct {
	older, newer []int32 // doubly linked list through the samples; index samples is the head
	head         int32
}

func newLRU(samples int) *lru {
	p := &lru{older: make([]int32, samples+1), newer: make([]int32, samples+1), head: int32(samples)}
	p.older[p.head], p.newer[p.head] = p.head, p.head
	return p
}

func (p *lru) Admit(id SampleID, _ float64) {
	i, newest := int32(id), p.older[p.head]
	p.older[i], p.newer[i] = newest, p.head
	p.newer[newest], p.older[p.head] = i, i
}

func (p *lru) Touch(id SampleID, next float64) {
	p.Remove(id)
	p.Admit(id, next)
}

func (p *lru) Refresh(SampleID, float64) {}

func (p *lru) Next(SampleID) float64 { return 0 }

func (p *lru) Remove(id SampleID) {
	older, newer := p.older[id], p.newer[id]
	p.newer[older], p.older[newer] = newer, older
}

func (p *lru) Victim() (SampleID, bool) {
	oldest := p.newer[p.head]
	return SampleID(oldest), oldest != p.head
}

func (p *lru) Yields(SampleID, float64) bool { return true }
