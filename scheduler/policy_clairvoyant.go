package scheduler

// clairvoyant is Bélády's MIN with bypass over known and predicted next uses: the resident whose next use is
// farthest goes first, and a newcomer that is needed later than every resident is not kept at all.
//
// Source: Belady, IBM Systems Journal 1966 (MIN); bypass as in McFarling, ISCA 1992.
// Differs: beyond the planned epoch the next use is predicted by the sample's own race clock.
type clairvoyant struct {
	heap []SampleID // max-heap by next
	at   []int32    // place in heap, by sample; -1: no resident
	next []float64  // by place in heap
}

func newClairvoyant(samples int) *clairvoyant {
	at := make([]int32, samples)
	for i := range at {
		at[i] = -1
	}
	return &clairvoyant{at: at}
}

func (p *clairvoyant) Admit(id SampleID, next float64) {
	p.heap = append(p.heap, id)
	p.next = append(p.next, next)
	p.at[id] = int32(len(p.heap) - 1)
	p.up(len(p.heap) - 1)
}

func (p *clairvoyant) Touch(id SampleID, next float64) { p.Refresh(id, next) }

func (p *clairvoyant) Refresh(id SampleID, next float64) {
	i := int(p.at[id])
	p.next[i] = next
	if !p.up(i) {
		p.down(i)
	}
}

func (p *clairvoyant) Next(id SampleID) float64 { return p.next[p.at[id]] }

func (p *clairvoyant) Remove(id SampleID) {
	i, last := int(p.at[id]), len(p.heap)-1
	p.swap(i, last)
	p.heap, p.next = p.heap[:last], p.next[:last]
	p.at[id] = -1
	if i < last && !p.up(i) {
		p.down(i)
	}
}

func (p *clairvoyant) Victim() (SampleID, bool) {
	if len(p.heap) == 0 {
		return 0, false
	}
	return p.heap[0], true
}

func (p *clairvoyant) Yields(victim SampleID, next float64) bool {
	return next < p.next[p.at[victim]]
}

// before orders the heap: the farther use first, ties by id, so that every rank and every run agrees.
func (p *clairvoyant) before(i, j int) bool {
	if p.next[i] != p.next[j] {
		return p.next[i] > p.next[j]
	}
	return p.heap[i] < p.heap[j]
}

func (p *clairvoyant) swap(i, j int) {
	p.heap[i], p.heap[j] = p.heap[j], p.heap[i]
	p.next[i], p.next[j] = p.next[j], p.next[i]
	p.at[p.heap[i]], p.at[p.heap[j]] = int32(i), int32(j)
}

func (p *clairvoyant) up(i int) bool {
	moved := false
	for i > 0 {
		parent := (i - 1) / 2
		if !p.before(i, parent) {
			break
		}
		p.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (p *clairvoyant) down(i int) {
	for {
		first := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(p.heap) && p.before(child, first) {
				first = child
			}
		}
		if first == i {
			return
		}
		p.swap(i, first)
		i = first
	}
}
