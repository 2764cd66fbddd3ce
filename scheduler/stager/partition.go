package stager

import (
	"math"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// partition is one owner's cache, driven by a lane's plans: it gives the policy the time of each
// sample's next draw by this owner, exact inside the epoch and predicted beyond it.
type partition struct {
	*store
	rank   int
	lane   int
	plan   *plan.Plan // nil before the first
	view   *plan.View
	ahead  *plan.Plan // the epoch after it, once it is planned
	scored Scored
	hits   []hitCount // by epoch, the newest last
	drew   func(lane, epoch, place int, outcome Outcome)

	place  int     // in plan, of the end of the lane's window
	recent float64 // draws, the newest count most
	pace   float64 // share of the draws of all lanes, as last measured
	weight float64 // what memory is worth to the lane
	// by sample: the place of its next draw from the end of the window on, as view.first; nil as
	// long as there is one lane
	upcoming []int32
	// residents that a package brought in and that were not drawn since
	unpacked map[draw.SampleID]bool
}

// hitCount counts the draws of an epoch that found their sample kept.
type hitCount struct{ epoch, hits int }

// goneElsewhere is the next use of a resident whose next draw is another owner's: it is evicted
// before all others.
const goneElsewhere = math.MaxFloat64

// start begins a plan at batch from, and gives the residents their exact next uses.
func (p *partition) start(begun *plan.Plan, v *plan.View, from int) {
	p.plan, p.view, p.ahead = begun, v, nil
	p.place, _ = begun.Range(from)
	for i := 0; i < p.place && v.Rank != plan.AllRanks; i++ { // draws of batches that are not trained
		if begun.Owner(i) == p.rank {
			v.First[begun.IDs[i]] = v.Reach()
		}
	}
	p.hits = append(p.hits, hitCount{epoch: begun.Epoch})
	p.unpacked = map[draw.SampleID]bool{}
	use := func(id draw.SampleID, _ float64) Use {
		place := v.First[id]
		if place >= 0 && v.Rank == plan.AllRanks && begun.Owner(int(place)) != p.rank {
			place = plan.Elsewhere
		}
		return p.use(id, place)
	}
	if p.shared {
		p.look()
		use = p.refreshed
	}
	p.refreshAll(use)
	if l, ok := p.cache.policy.(Lister); ok && p.scored.Scores != nil {
		l.Epoch(p.scored.Scores, p.scored.anyKnown())
	}
	if v.Rank != plan.AllRanks {
		v.First = nil
	}
}

// reach moves on to draw i of the plan, which must be this owner's next one, and returns the place
// of the sample's next draw.
func (p *partition) reach(i int) (next int32) {
	if p.view.Rank == plan.AllRanks {
		next = p.view.Next[i]
	} else {
		next = p.view.Reach()
	}
	if p.shared {
		p.upcoming[p.plan.IDs[i]] = next
	}
	return next
}

// likely is how much sooner a sample may turn out to be drawn again, in epochs, than predicted
// before its loss is known. The owner reads such a sample, so that it can keep it, and the consumer
// gets it from the owner. With 0 a tenth of the hits of a consumer elsewhere is lost in the
// smallest partitions (8,000 samples, 64 ranks of 8, 10 %: 0.969 of MIN); from 0.3 on next to none
// (0.995, and 0.998 for 1).
const likely = 0.5

// wants reports whether draw i is likely to find its sample or keep it, in memory or in the tier.
func (p *partition) wants(i int, next int32) bool {
	u := p.use(p.plan.IDs[i], next)
	u.Next -= likely
	u = p.soonest(p, u)
	return p.cache.Wants(u) || p.tier.wants(u)
}

// draw passes draw i through the policy; next is what reach returned. A sample that this rank does
// not have cannot be kept.
func (p *partition) draw(i int, next int32, had bool, evicted func(draw.SampleID)) Outcome {
	outcome, id := Bypassed, p.plan.IDs[i]
	if had || p.cache.Resident(id) || p.tier.has(id) {
		outcome = p.pass(p.soonest(p, p.use(id, next)), had, evicted)
	}
	if outcome == Hit && !p.plan.Evaluated().Has(p.plan.BatchOf(i)) && !p.unpacked[id] {
		p.hits[len(p.hits)-1].hits++
	}
	delete(p.unpacked, id)
	if p.drew != nil {
		p.drew(p.lane, p.plan.Epoch, i, outcome)
	}
	return outcome
}

// pass lets the policy decide, and updates the tier.
func (p *partition) pass(u Use, had bool, evicted func(draw.SampleID)) Outcome {
	if p.tier == nil {
		return p.cache.Draw(u, evicted)
	}
	outcome := Bypassed
	if had || p.cache.Resident(u.ID) {
		outcome = p.cache.draw(u, func(v Use) {
			p.tier.left(v)
			evicted(v.ID)
		})
	}
	if outcome == Bypassed {
		p.tier.left(u)
	} else {
		p.tier.kept(u.ID)
	}
	return outcome
}

// foresee records the plan after the current one: a sample that is not drawn again in this epoch
// has an exact place in that one.
func (p *partition) foresee(plan *plan.Plan) {
	p.ahead = plan
	p.refreshAll(p.refreshed)
}

// use returns what is known of a sample whose next draw is at place.
func (p *partition) use(id draw.SampleID, place int32) Use {
	u := Use{ID: id}
	if p.scored.Scores != nil {
		u.Score, u.Known = p.scored.Scores[id], p.scored.Known(id)
	}
	switch {
	case place >= 0:
		u.Next = p.plan.Time(place)
	case place == plan.Elsewhere:
		u.Next = goneElsewhere
	default:
		u.Next = p.predict(id, u.Score)
	}
	return u
}

// predict returns the time of a sample's first draw after this epoch. Scores change with the epoch,
// most of them alike, so a score counts by its share of the sum of scores as it is now.
func (p *partition) predict(id draw.SampleID, score float32) float64 {
	if p.ahead == nil {
		if now := p.scored.Total; now > 0 && p.plan.Sum > 0 {
			score *= float32(p.plan.Sum / now)
		}
		return p.plan.Next(id, score)
	}
	place := p.ahead.View.First[id]
	switch {
	case place == plan.NoPlace:
		return p.ahead.Next(id, score)
	case place == plan.Elsewhere ||
		p.ahead.View.Rank == plan.AllRanks && p.ahead.Owner(int(place)) != p.rank:
		return goneElsewhere
	}
	return p.ahead.Time(place)
}

// take applies new scores, and refreshes the predicted next draws of the samples whose scores
// changed; the first time, of all residents, which may be left from before a restart.
func (p *partition) take(e Scored) {
	first := p.scored.Scores == nil
	p.scored = e
	if p.plan == nil {
		return
	}
	if first {
		p.cache.RefreshAll(p.refreshed)
	}
	for _, id := range e.IDs {
		if next, in := p.cache.Next(id); in {
			p.cache.Refresh(p.refreshed(id, next))
		} else if p.tier.has(id) {
			next, _ := p.tier.cache.Next(id)
			p.tier.cache.Refresh(p.refreshed(id, next))
		}
	}
}

// refreshed returns what is known of a sample whose next draw was expected at next: a time in this
// epoch, or elsewhere, does not change.
func (p *partition) refreshed(id draw.SampleID, next float64) Use {
	if p.shared {
		return p.soonest(p, p.use(id, p.upcoming[id]))
	}
	u := p.use(id, plan.NoPlace)
	if next < float64(p.plan.Epoch+1) || next == goneElsewhere {
		u.Next = next
	}
	return u
}

// anyKnown reports whether a sample was ever scored.
func (e *Scored) anyKnown() bool {
	for id := range e.Scores {
		if e.Known(draw.SampleID(id)) {
			return true
		}
	}
	return false
}
