package stager

import (
	"math"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// store holds a rank's samples: the residents in memory, and those in the tier. Several lanes may
// use it. A sample's next use is then the nearest in any lane, on a common time scale: each lane's
// own time, in epochs, divided by its pace. The common time is the number of draws of all lanes
// that have entered their windows; a lane's pace is its share of the newest of them. As long as
// there has been only one lane, times are the lane's own.
//
// The less memory is worth to a lane, relative to the others, the farther away its uses count: that
// decides what stays when lanes draw at the same rate.
//
// MIN over the interleaved draws of all lanes would need to know future paces. The share of a lane
// that stops shrinks, so its next uses move into the future, and its samples are evicted before
// those that others use.
type store struct {
	cache   *Cache
	tier    *tier // nil: none
	samples int

	lanes  []*partition // that are open
	shared bool         // there have been several
	now    float64      // draws that have entered windows
	taken  float64      // the value of now when paces were last measured
}

const (
	// paceDraws is the number of draws, as a share of the samples, after which a draw counts half in
	// its lane's pace. With four lanes, three of them at half their pace, reads stay within 0.2 % for
	// values from 1/8 to 4 (8,000 samples, chunks and torch).
	paceDraws = 0.5
	// paceEvery is how often paces are measured, in draws as a share of the samples: all residents'
	// next uses are recomputed if one has changed by more than paceChange.
	paceEvery  = 1. / 16
	paceChange = 0.2
	// paceLeast is the share of the draws below which a lane stands still.
	paceLeast = 1e-3
)

// join adds a lane, and assumes that it has the mean pace of the others.
func (st *store) join(p *partition) {
	others := float64(len(st.lanes))
	st.lanes = append(st.lanes, p)
	p.recent, p.pace, p.weight = 1, 1, 1
	if others > 0 {
		p.recent = (st.allRecent() - p.recent) / others
		st.shared = true
	}
	if !st.shared {
		return
	}
	for _, q := range st.lanes {
		if q.upcoming == nil {
			q.look()
		}
	}
	st.takePaces()
}

// leave removes a lane. Samples that only it would have used have no next use then.
func (st *store) leave(p *partition) {
	st.lanes = slices.DeleteFunc(st.lanes, func(q *partition) bool { return q == p })
	st.takePaces()
}

// entered records that places [lo, hi) of a lane's plan have entered its window.
func (st *store) entered(p *partition, lo, hi int) {
	p.place = hi
	if !st.shared {
		return
	}
	draws := float64(hi - lo)
	fade := math.Exp2(-draws / (paceDraws * float64(st.samples)))
	for _, q := range st.lanes {
		q.recent *= fade
	}
	p.recent += draws
	st.now += draws
	if st.now >= st.taken+paceEvery*float64(st.samples) && st.pacesChanged() {
		st.takePaces()
	}
}

// weigh sets what memory is worth to a lane.
func (st *store) weigh(p *partition, weight float64) {
	if p.weight == weight {
		return
	}
	p.weight = weight
	if st.shared {
		st.takePaces()
	}
}

// allRecent is the sum of what counts in the paces of all lanes.
func (st *store) allRecent() float64 {
	sum := 0.0
	for _, q := range st.lanes {
		sum += q.recent
	}
	return max(sum, math.SmallestNonzeroFloat64)
}

func (st *store) pacesChanged() bool {
	sum := st.allRecent()
	return slices.ContainsFunc(st.lanes, func(q *partition) bool {
		pace := max(q.recent/sum, paceLeast)
		return pace > q.pace*(1+paceChange) || pace < q.pace/(1+paceChange)
	})
}

// takePaces measures the current paces, and recomputes all next uses.
func (st *store) takePaces() {
	st.taken = st.now
	sum := st.allRecent()
	for _, q := range st.lanes {
		q.pace = max(q.recent/sum, paceLeast)
	}
	if len(st.lanes) == 0 {
		return
	}
	st.refreshAll(func(id draw.SampleID, _ float64) Use { return st.nearest(id) })
}

// refreshAll replaces what is known of all samples; use gets what was known of their next draw.
func (st *store) refreshAll(use func(id draw.SampleID, next float64) Use) {
	st.cache.RefreshAll(use)
	st.tier.refreshAll(st.cache, use)
}

// nearest returns what is known of a sample, with its nearest use in any lane.
func (st *store) nearest(id draw.SampleID) Use {
	u := Use{ID: id, Next: math.Inf(1)}
	for _, p := range st.lanes {
		if p.plan == nil {
			continue
		}
		own := p.use(id, p.upcoming[id])
		if next := st.common(p, own.Next); next < u.Next || !u.Known {
			u.Score, u.Known = own.Score, own.Known
			u.Next = min(u.Next, next)
		}
	}
	return u
}

// refreshed returns what is known now of a sample whose next use was expected at next.
func (st *store) refreshed(id draw.SampleID, next float64) Use {
	if st.shared || len(st.lanes) == 0 {
		return st.nearest(id)
	}
	return st.lanes[0].refreshed(id, next)
}

// soonest returns u with the nearest use in any lane as its Next, instead of that in lane p.
func (st *store) soonest(p *partition, u Use) Use {
	if !st.shared {
		return u
	}
	u.Next = st.common(p, u.Next)
	for _, q := range st.lanes {
		if q != p && q.plan != nil {
			u.Next = min(u.Next, st.common(q, q.use(u.ID, q.upcoming[u.ID]).Next))
		}
	}
	return u
}

// common converts a lane's time to common time.
func (st *store) common(p *partition, next float64) float64 {
	if next == goneElsewhere {
		return next
	}
	ahead := max(next-p.plan.Time(int32(p.place)), 0) * float64(len(p.plan.IDs))
	return st.now + ahead/(p.pace*p.weight)
}

// look finds the next use of each sample from the end of the lane's window on.
func (p *partition) look() {
	if p.upcoming == nil {
		p.upcoming = make([]int32, p.samples)
	}
	for id := range p.upcoming {
		p.upcoming[id] = plan.NoPlace
	}
	if p.plan == nil {
		return
	}
	for i := len(p.plan.IDs) - 1; i >= p.place; i-- {
		if p.plan.Owner(i) == p.rank {
			p.upcoming[p.plan.IDs[i]] = p.plan.Stays(i)
		} else if p.plan.Home != nil {
			p.upcoming[p.plan.IDs[i]] = plan.Elsewhere
		}
	}
}

// goes reports whether the lane has drawn recently.
func (p *partition) goes() bool {
	return p.plan != nil && p.recent > standing*p.allRecent()/float64(len(p.lanes))
}

// standing is the share of the mean pace below which a lane counts as standing still, and others
// may have its share of the window.
const standing = 1. / 8
