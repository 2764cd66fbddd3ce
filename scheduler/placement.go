package scheduler

import "slices"

// Placement determines which rank may hold which sample, epoch by epoch, so that the partitions of
// all ranks together keep nearly what one memory of their total size would, and gives draws to the
// trainers of the ranks that hold their samples. A hash keeps less, because by chance demand for
// some partitions is higher; with few places per rank that costs up to a tenth of the hits.
//
// It follows every rank's partition through the draws and scores of the current epoch up to its
// cut, as they are folded, so all ranks have the same Placement without exchanging messages. The
// next epoch is planned from where samples are then, see Placed. Trainers depend on the result, so
// Placed is hard state: it is saved with the scores, and the same plan results after a restart.
// What memory holds stays soft state: a sample that is not where it is expected is read from
// storage.
//
// It is not safe for concurrent use.
//
// Source: the project's design, §3, "Placement need not be a hash".
type Placement struct {
	size  func(SampleID) int64
	last  *Placed     // what the newest plan was or will be made from
	plan  *Plan       // the newest; nil before the first
	view  *view       // of plan
	ranks []partition // in plan's epoch, as far as folded
	begun bool        // ranks have begun plan's epoch
}

// Placed is where samples are when the scores of a plan are taken, as every rank expects it. Its
// arrays do not change.
type Placed struct {
	CapacityBytes []int64      // by rank: what plans expect, even if a rank has less now
	Residents     [][]SampleID // by rank, ascending
	// the draws of an epoch from its cut on, and their owners; they precede the plan only if its epoch
	// is the next one
	TailEpoch int
	Tail      []SampleID
	TailHome  []uint16
}

// placementPlaces is how many samples a partition has to hold for a hash of samples to keep 0.98 of
// the hits: what it loses is roughly inversely proportional to the places, 3 % at 93, 1.7 % at 187
// and 0.8 % at 375 (pads, 60,000 samples, 64 ranks). A placement loses next to nothing.
const placementPlaces = 192

// PlacementFor returns the placement for a sampler and partitions, each with the tier below it,
// which together keep what one memory of their total size would. It returns nil if a hash does as
// well: for one rank, for large partitions, and for draws that do not depend on scores. For such
// draws, hits are proportional to memory, so it does not matter which partition is in more demand.
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
	return NewPlacement(&Placed{
		CapacityBytes: capacityBytes, Residents: make([][]SampleID, len(capacityBytes)),
	}, size)
}

// NewPlacement returns a placement that continues from where samples are, with samples of the given
// sizes. The arguments must be the same on every rank.
func NewPlacement(from *Placed, size func(SampleID) int64) *Placement {
	return &Placement{size: size, last: from}
}

// Open passes the placement the newest plan, which r placed.
func (p *Placement) Open(plan *Plan, r *Placing) {
	if plan.Moved() {
		placed := *plan
		placed.Home, placed.Ranks, placed.World = r.home, plan.Layout.Ranks, plan.Layout.World
		plan = &placed
	}
	p.plan, p.view, p.ranks, p.begun, p.last = plan, r.view, r.ranks, false, r.from
}

// Fold handles the draws of a batch that was folded into scores. Those from the cut on enter the
// next plan as they were planned.
func (p *Placement) Fold(e Scored) {
	if p.plan == nil || p.plan.Epoch != e.Epoch || e.Batch >= p.plan.Cut() {
		return
	}
	if !p.begun {
		p.begun = true
		for r := range p.ranks {
			p.ranks[r].scored = e
			p.ranks[r].start(p.plan, p.view, 0)
		}
	}
	lo, hi := p.plan.Range(e.Batch)
	for i := lo; i < hi; i++ {
		e.IDs = p.plan.IDs[i : i+1]
		p.ranks[p.plan.Owner(i)].take(e)
	}
	for i := lo; i < hi; i++ {
		r := &p.ranks[p.plan.Owner(i)]
		r.draw(i, r.reach(i), true, nobody)
	}
}

// Placed returns where samples are. Everything before the newest plan's cut must be folded.
func (p *Placement) Placed() *Placed {
	if p.plan == nil {
		return p.last
	}
	lo, _ := p.plan.Range(p.plan.Cut())
	now := &Placed{
		CapacityBytes: p.last.CapacityBytes, Residents: make([][]SampleID, len(p.ranks)),
		TailEpoch: p.plan.Epoch, Tail: p.plan.IDs[lo:], TailHome: p.plan.Home[lo:],
	}
	for r := range p.ranks {
		for _, u := range p.ranks[r].cache.Residents() {
			if u.Next != goneElsewhere {
				now.Residents[r] = append(now.Residents[r], u.ID)
			}
		}
		slices.Sort(now.Residents[r])
	}
	return now
}

// Placing places the draws of an epoch.
type Placing struct {
	from *Placed
	size func(SampleID) int64
	// of the placed plan
	home  []uint16
	view  *view
	ranks []partition // when its epoch begins
}

// Place returns the owner and the consumer of each of an epoch's draws, on the ranks of the layout.
// scores are those that the epoch was drawn with. Place only reads what r was made from.
func (r *Placing) Place(
	cfg *PlanConfig, d *Draws, scores []float32,
) (home, consumer []uint16) {
	if l := cfg.Layout; l != nil {
		by := *cfg
		by.Ranks, by.World = l.Ranks, l.World
		cfg = &by
	}
	run := newPooling(r.from, r.size, cfg, d, scores)
	run.begin()
	r.ranks = run.partitions()
	run.epoch()
	r.home = run.home
	r.view = newView(&Plan{Draws: d, Home: r.home, Ranks: cfg.Ranks}, len(scores), AllRanks)
	return run.home, run.consumer
}
