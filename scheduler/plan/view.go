package plan

import "slices"

// Instead of a place in the epoch: the sample is not drawn again in it, or its next draw is another
// owner's.
const (
	NoPlace   = -1
	Elsewhere = -2
)

// View has the next draw of each sample in an epoch: among one owner's draws, or among all.
type View struct {
	Rank int     // whose draws they are, or AllRanks
	Next []int32 // AllRanks: by draw, the place of the sample's next draw, NoPlace or Elsewhere
	// For one owner, which reaches its draws in order: a bit for each, set if the sample is drawn
	// again; later has the places of those next draws, or Elsewhere. In both the first draw is last.
	again  []uint64
	later  []int32
	ahead  int         // its draws that it has not reached
	First  []int32     // by sample: the place of its first draw, NoPlace or Elsewhere
	shares []batchView // by batch, for AllRanks: made when the first rank gets there
	places []int32     // buffer for one rank's share of a batch
}

// batchView groups the draws of a batch by rank: places[begin[r]:begin[r+1]] are those that rank r
// owns or consumes.
type batchView struct{ begin, places []int32 }

// Share returns the places of a batch that a rank owns or consumes, in order. The slice is valid
// until the next call.
func (v *View) Share(p *Plan, rank, batch int) []int32 {
	lo, hi := p.Range(batch)
	if v.Rank != AllRanks {
		v.places = v.places[:0]
		for i := lo; i < hi; i++ {
			if p.Owner(i) == rank || int(p.World[p.Consumer[i]]) == rank {
				v.places = append(v.places, int32(i))
			}
		}
		return v.places
	}
	if v.shares == nil {
		v.shares = make([]batchView, p.Batches())
	}
	s := &v.shares[batch]
	if s.begin == nil {
		*s = p.newBatchView(lo, hi)
	}
	return s.places[s.begin[rank]:s.begin[rank+1]]
}

func (p *Plan) newBatchView(lo, hi int) batchView {
	s := batchView{begin: make([]int32, p.Ranks+2)}
	each := func(do func(rank int, i int32)) {
		for i := lo; i < hi; i++ {
			owner, consumer := p.Owner(i), int(p.World[p.Consumer[i]])
			do(owner, int32(i))
			if consumer != owner {
				do(consumer, int32(i))
			}
		}
	}
	each(func(rank int, _ int32) { s.begin[rank+2]++ })
	for r := range p.Ranks {
		s.begin[r+2] += s.begin[r+1]
	}
	s.places = make([]int32, s.begin[p.Ranks+1])
	each(func(rank int, i int32) {
		s.places[s.begin[rank+1]] = i
		s.begin[rank+1]++
	})
	return s
}

// AllRanks asks for a plan with the view of every owner, which the stagers of all ranks share in a
// simulation.
const AllRanks = -1

// newView returns the view of a rank, or of AllRanks, of a plan.
func newView(p *Plan, samples, rank int) *View {
	v := &View{Rank: rank, First: slices.Repeat([]int32{NoPlace}, samples)}
	if rank == AllRanks {
		v.Next = make([]int32, len(p.IDs))
		for i := len(p.IDs) - 1; i >= 0; i-- {
			id := p.IDs[i]
			v.Next[i] = v.First[id]
			if j := v.First[id]; j >= 0 && p.Owner(int(j)) != p.Owner(i) {
				v.Next[i] = Elsewhere
			}
			v.First[id] = p.Stays(i)
		}
		return v
	}
	for i := len(p.IDs) - 1; i >= 0; i-- {
		id := p.IDs[i]
		if p.Owner(i) == rank {
			if v.ahead%64 == 0 {
				v.again = append(v.again, 0)
			}
			if next := v.First[id]; next != NoPlace {
				v.again[v.ahead/64] |= 1 << (v.ahead % 64)
				v.later = append(v.later, next)
			}
			v.ahead++
			v.First[id] = p.Stays(i)
		} else if p.Home != nil {
			v.First[id] = Elsewhere
		}
	}
	return v
}

// Reach moves on to the owner's next draw, and returns the place of its sample's next one.
func (v *View) Reach() (next int32) {
	v.ahead--
	i := v.ahead
	if v.again[i/64]>>(i%64)&1 == 0 {
		return NoPlace
	}
	last := len(v.later) - 1
	next, v.later = v.later[last], v.later[:last]
	return next
}

// Stays returns i as the place of its sample's next use, or NoPlace if a system that decides where
// samples are drops it before.
func (p *Plan) Stays(i int) int32 {
	if p.Home != nil && !p.Found(i) {
		return NoPlace
	}
	return int32(i)
}
