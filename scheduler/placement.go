package scheduler

import "slices"

// Placement determines which rank may hold which sample, epoch by epoch, so that the partitions of
// all ranks together keep nearly what one memory of their total size would: a new sample goes where
// the resident evicted for it was. A hash keeps less, because by chance demand for some partitions
// is higher; with few places per rank that costs up to a tenth of the hits.
//
// It follows every rank's partition through the draws and scores of the current epoch, as they are
// folded, so all ranks have the same Placement at the same batch without exchanging messages. When
// the next epoch is planned, it resumes from there as one pool, to the end of that epoch. If ranks
// disagree after all, samples are not found where they are expected, and are read from storage: a
// placement is soft state. So it does not determine who consumes a draw, which must not change when
// a cache restarts.
//
// It is not safe for concurrent use; an Outlook taken from it is independent.
//
// Source: the project's design, §3, "Placement need not be a hash".
type Placement struct {
	size          func(SampleID) int64
	capacityBytes []int64     // by rank
	ranks         []partition // as far as folded
	owner         []uint16    // by sample: of its last draw
	opened        []opened    // epochs that are or will be folded, the newest last, at most two
	folded        int         // batches of opened[0] below are folded
}

type opened struct {
	plan *Plan
	view *view // made when the epoch's first batch is folded
}

// NewPlacement returns a placement of empty partitions, of capacityBytes each, over samples of the
// given sizes. The arguments must be the same on every rank.
func NewPlacement(samples int, capacityBytes []int64, size func(SampleID) int64) *Placement {
	p := &Placement{size: size, capacityBytes: capacityBytes, owner: make([]uint16, samples)}
	for id := range p.owner {
		p.owner[id] = uint16(Owner(SampleID(id), len(capacityBytes)))
	}
	for r, bytes := range capacityBytes {
		p.ranks = append(
			p.ranks, partition{rank: r, store: &store{cache: NewCache(NewClairvoyant(), bytes, size)}})
	}
	return p
}

// placementPlaces is how many samples a partition has to hold for a hash of samples to keep 0.98 of
// the hits: what it loses goes with one over the root of the places, and is 3 % at 93, 1.7 % at 187
// and 0.8 % at 375 (pads, 60,000 samples, 64 ranks). A placement loses next to nothing, but most
// hits are then in another rank's memory.
const placementPlaces = 192

// PlacementFor returns the placement for a sampler and partitions with the tiers below them, which
// keep what one memory of their sizes together would, or nil when a hash does as well: for one
// rank, for large partitions, and for draws that do not depend on scores. With those hits are
// proportional to memory, so it does not matter which partition is wanted more.
func PlacementFor(
	sampler Sampler, samples int, capacityBytes []int64, size func(SampleID) int64,
) *Placement {
	capacity, total := int64(0), int64(0)
	for _, bytes := range capacityBytes {
		capacity += bytes
	}
	for id := range samples {
		total += size(SampleID(id))
	}
	places := float64(capacity) / float64(max(total, 1)) * float64(samples) / float64(
		len(capacityBytes))
	if len(capacityBytes) < 2 || !sampler.Weighted() || places >= placementPlaces {
		return nil
	}
	return NewPlacement(samples, capacityBytes, size)
}

// Open sets the plan of the epoch that is folded next.
func (p *Placement) Open(plan *Plan) {
	p.opened = append(p.opened, opened{plan: plan})
	if n := len(p.opened); n > 2 {
		p.opened, p.folded = p.opened[n-2:], 0
	}
}

// Fold handles the draws of a batch that was folded into scores.
func (p *Placement) Fold(e Scored) {
	for len(p.opened) > 1 && p.opened[0].plan.Epoch != e.Epoch {
		p.opened, p.folded = p.opened[1:], 0
	}
	if len(p.opened) == 0 || p.opened[0].plan.Epoch != e.Epoch {
		return
	}
	o := &p.opened[0]
	if o.view == nil {
		o.view = newView(o.plan, len(p.owner), AllRanks)
		for r := range p.ranks {
			p.ranks[r].scored = e
			p.ranks[r].start(o.plan, o.view, 0)
		}
	}
	p.folded = e.Batch + 1
	lo, hi := o.plan.Range(e.Batch)
	for i := lo; i < hi; i++ {
		e.IDs = o.plan.IDs[i : i+1]
		p.ranks[o.plan.Owner(i)].take(e)
	}
	for i := lo; i < hi; i++ {
		r := &p.ranks[o.plan.Owner(i)]
		p.owner[o.plan.IDs[i]] = uint16(r.rank)
		r.draw(i, r.reach(i), true, func(SampleID) {})
	}
}

// Outlook is a Placement at one moment.
type Outlook struct {
	size          func(SampleID) int64
	capacityBytes []int64 // by rank
	epoch         int     // under way; -1: none
	residents     [][]Use // by rank
	owner         []uint16
	tail          []SampleID // draws of the epoch under way that are not folded
	tailOwner     []uint16
}

// Outlook returns the placement as folded so far.
func (p *Placement) Outlook() *Outlook {
	o := &Outlook{
		size: p.size, capacityBytes: p.capacityBytes, epoch: -1,
		owner: slices.Clone(p.owner), residents: make([][]Use, len(p.ranks)),
	}
	for r := range p.ranks {
		for _, u := range p.ranks[r].cache.Residents() {
			if u.Next != goneElsewhere && int(o.owner[u.ID]) == r {
				o.residents[r] = append(o.residents[r], u)
			}
		}
	}
	if len(p.opened) > 0 {
		plan := p.opened[0].plan
		o.epoch = plan.Epoch
		lo, _ := plan.Range(p.folded)
		for i := lo; i < len(plan.IDs); i++ {
			o.tail = append(o.tail, plan.IDs[i])
			o.tailOwner = append(o.tailOwner, uint16(plan.Owner(i)))
		}
	}
	return o
}

// Place returns the owner of each of an epoch's draws. scores are those that it was drawn with. It
// may be called more than once.
func (o *Outlook) Place(d *Draws, scores []float32) []uint16 {
	run := pooling{Outlook: *o, owner: slices.Clone(o.owner)}
	if d.Epoch != o.epoch+1 {
		run.tail = nil
	}
	return run.place(d, scores)
}

// pooling is a run of all ranks' partitions through the rest of an epoch and the next one.
type pooling struct {
	Outlook
	owner []uint16 // by sample: where it is kept, or was kept last
	ranks []*Cache
	heaps []*Clairvoyant
}

func (o *pooling) place(d *Draws, scores []float32) []uint16 {
	ids := slices.Concat(o.tail, d.IDs)
	next, first := nextPlaces(ids, len(o.owner))
	at := func(id SampleID, place int32) Use {
		if place >= 0 {
			return Use{ID: id, Next: float64(d.Epoch) +
				float64(int(place)-len(o.tail))/float64(len(d.IDs))}
		}
		return Use{ID: id, Next: d.Next(id, scores[id])}
	}
	for r, bytes := range o.capacityBytes {
		o.heaps = append(o.heaps, NewClairvoyant())
		o.ranks = append(o.ranks, NewCache(o.heaps[r], bytes, o.size))
		for _, u := range o.residents[r] {
			o.ranks[r].Draw(at(u.ID, first[u.ID]), nobody)
		}
	}
	homes := make([]uint16, len(d.IDs))
	for i, id := range ids {
		u := at(id, next[i])
		switch {
		case i < len(o.tail):
			o.owner[id] = o.tailOwner[i]
			o.ranks[o.owner[id]].Draw(u, nobody)
			continue
		case o.ranks[o.owner[id]].Resident(id):
			o.ranks[o.owner[id]].Draw(u, nobody)
		default:
			o.owner[id] = uint16(o.admit(u))
		}
		homes[i-len(o.tail)] = o.owner[id]
	}
	return homes
}

func nobody(SampleID) {}

// nearEnough is how much sooner, in epochs, the resident that leaves may be drawn again than the
// one of all ranks that is drawn last, for a newcomer to stay with its owner by hash, where its
// trainers have it in their own memory. With 0.3 a partition of 12 samples loses 3 % of the hits,
// with 0.1 less than 2 %, and with 0 no less.
const nearEnough = 0.1

// admit gives a newcomer its owner: the one by hash if that has room or gives up nearly as little
// as any; else the rank whose resident is drawn again last. A newcomer that is kept by none stays
// with its owner by hash.
func (o *pooling) admit(u Use) int {
	home := Owner(u.ID, len(o.ranks))
	last, at := o.farthest()
	mine, any := o.heaps[home].Farthest()
	if !any || mine >= at-nearEnough || o.ranks[home].fits(u.ID) {
		last = home
	}
	if o.ranks[last].Draw(u, nobody) == Bypassed {
		return home
	}
	return last
}

// farthest returns the rank whose resident is drawn again last, the first in a tie, and the time of
// that draw.
func (o *pooling) farthest() (rank int, at float64) {
	for r, h := range o.heaps {
		if next, any := h.Farthest(); any && next > at {
			rank, at = r, next
		}
	}
	return rank, at
}

// nextPlaces returns, for each draw, the place of the sample's next draw, and for each sample that
// of its first; noPlace if there is none.
func nextPlaces(ids []SampleID, samples int) (next, first []int32) {
	next, first = make([]int32, len(ids)), make([]int32, samples)
	for i := range first {
		first[i] = noPlace
	}
	for i := len(ids) - 1; i >= 0; i-- {
		next[i] = first[ids[i]]
		first[ids[i]] = int32(i)
	}
	return next, first
}
