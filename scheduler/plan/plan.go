// Package plan decides which trainer consumes each draw of an epoch, and knows when a sample is
// drawn next.
package plan

import (
	"iter"
	"math"
	"slices"

	"rankpool/scheduler/draw"
)

// Version is increased when the same sampler, seed and scores give other draws or another
// order: a training that resumed with another version would not get the stream that it began with.
// TestPlansOfThisVersion pins the plans.
const Version = 3

// Assignment decides which trainer consumes a draw.
type Assignment uint8

const (
	// AssignLocal gives the draws of a global batch to the trainers of their owner first.
	AssignLocal Assignment = iota
	// AssignSampler gives position j of a global batch to trainer j mod W, as DistributedSampler
	// does.
	AssignSampler
)

// Plan is an epoch: its draws, in order, and who consumes each. It is the same on every rank,
// except for the view, which is one rank's. A Plan does not change after New, and may be read
// concurrently.
type Plan struct {
	*draw.Draws
	// draws in a global batch; the last one may have fewer, and all may if ends is not nil
	Batch    int
	ends     []int32  // by global batch, of epochs that were handed in: the place after its draws
	Consumer []uint16 // trainer of each draw, len(IDs)
	World    []int32  // rank of each trainer

	Home  []uint16 // owner of each draw, len(IDs); nil: see Owner
	Ranks int

	Processes int // PlanConfig's

	pieces *Plan // see Held; nil: a sample is one piece
	block  int   // of a plan of pieces: of so many neighbouring ids one rank is the owner

	View *View
}

// Config is the basis of a plan, besides epoch and scores.
type Config struct {
	Sampler   draw.Sampler
	Samples   int     // 0: no view is added
	BatchSize int     // a trainer's
	World     []int32 // rank of each trainer; the global batch is BatchSize · len(World)
	Ranks     int
	Rank      int // whose view to add, or AllRanks
	// Processes is how many processes the training began with, for which torch pads epochs; 0:
	// len(World)
	Processes  int
	Assignment Assignment
	// Shared is for one of several trainings that share the memory. What a published system has
	// chosen is served, but the owners are those of the hash, and the next use of a sample is its next
	// draw: where samples are, and which stay, is no longer the choice of one training.
	Shared bool
	// Lists are the parts of the epoch that the trainers have handed in; nil: Sampler draws it.
	Lists []List
	// Pieces are what samples are made of; nil: each is one piece.
	Pieces *Pieces
	// Drawn, if not nil, is called between drawing, which leaves the most garbage, and assigning.
	Drawn func()
}

// New draws an epoch and assigns its draws. scores has one entry per sample and must not change
// afterwards; it may be nil when the sampler is not weighted. The same arguments give the same plan
// on every rank.
func New(cfg Config, epoch int, scores []float32) *Plan {
	sampler := cfg.Sampler
	if p, pads := sampler.(draw.Padder); pads {
		sampler = p.Pad(cfg.Processes)
	}
	if cfg.Lists != nil {
		sampler = draw.Listed(join(cfg.Lists))
	}
	draws := sampler.Draw(epoch, scores)
	if cfg.Drawn != nil {
		cfg.Drawn()
	}
	p := &Plan{
		Draws: draws,
		Batch: cfg.BatchSize * len(cfg.World),
		World: cfg.World,
		Ranks: cfg.Ranks, Processes: cfg.Processes,
		Consumer: make([]uint16, len(draws.IDs)),
	}
	if !cfg.Shared {
		p.Home = draws.Homes()
	}
	var prefer func(draw.SampleID) float32
	if sampler.Weighted() {
		prefer = func(id draw.SampleID) float32 { return scores[id] }
	}
	if cfg.Lists != nil {
		p.assignLists(cfg.Lists, cfg.Assignment)
	} else {
		Assign(draws.IDs, cfg.World, cfg.Ranks, cfg.BatchSize, cfg.Assignment, cfg.Pieces, prefer,
			p.Consumer)
	}
	switch {
	case cfg.Samples > 0 && cfg.Pieces != nil:
		p.pieces = cfg.Pieces.expand(p, cfg.Rank)
		p.Next(0, 0)
	case cfg.Samples > 0:
		p.View = newView(p, cfg.Samples, cfg.Rank)
		p.Next(0, 0) // makes torch compute its next permutation now, while training runs
	}
	return p
}

// Owner is the rank whose partition may hold the sample of draw i.
func (p *Plan) Owner(i int) int {
	if p.Home != nil {
		return int(p.Home[i])
	}
	if p.block > 1 {
		return draw.OwnerOfBlock(p.IDs[i], p.block, p.Ranks)
	}
	return draw.Owner(p.IDs[i], p.Ranks)
}

// Batches is the number of global batches.
func (p *Plan) Batches() int {
	if p.ends != nil {
		return len(p.ends)
	}
	return (len(p.IDs) + p.Batch - 1) / p.Batch
}

// BatchOf returns the global batch of draw i.
func (p *Plan) BatchOf(i int) int {
	if p.ends == nil {
		return i / p.Batch
	}
	b, _ := slices.BinarySearch(p.ends, int32(i+1))
	return b
}

// Range returns the places [lo, hi) of global batch b in IDs; after the last batch there are none.
func (p *Plan) Range(b int) (lo, hi int) {
	if p.ends != nil {
		if b >= len(p.ends) {
			return len(p.IDs), len(p.IDs)
		}
		if b > 0 {
			lo = int(p.ends[b-1])
		}
		return lo, int(p.ends[b])
	}
	lo = min(b*p.Batch, len(p.IDs))
	return lo, min(lo+p.Batch, len(p.IDs))
}

// Cut is the global batch before which scores enter the plan of the next epoch. The last eighth of
// the trained batches is left for exchanging scores and making the plan. Batches that are evaluated
// come before the cut.
func (p *Plan) Cut() int { return p.Batches() - tail(p.Batches()-p.Evaluated().N) }

// tail is how many of the batches that an epoch trains come after its cut.
func tail(trained int) int { return trained / 8 }

// EvaluateAt returns where an epoch with the given number of trained batches, at least 1, has its
// evaluated ones: right before the trained batch that it returns. Their losses enter the next
// epoch's plan, and only whole batches come before them.
func EvaluateAt(trained int) int { return trained - max(tail(trained), 1) }

// Places yields the places in IDs of the draws of global batch b that trainer consumes, in order.
func (p *Plan) Places(b, trainer int) iter.Seq[int] {
	return func(yield func(int) bool) {
		lo, hi := p.Range(b)
		for i := lo; i < hi; i++ {
			if int(p.Consumer[i]) == trainer && !yield(i) {
				return
			}
		}
	}
}

// Part returns the samples of global batch b that trainer consumes, in order.
func (p *Plan) Part(b, trainer int) (ids []draw.SampleID) {
	for i := range p.Places(b, trainer) {
		ids = append(ids, p.IDs[i])
	}
	return ids
}

// PartLen is the number of samples of global batch b that trainer consumes.
func (p *Plan) PartLen(b, trainer int) (n int) {
	for range p.Places(b, trainer) {
		n++
	}
	return n
}

// DrawsOf is the number of draws of the epoch that trainer consumes.
func (p *Plan) DrawsOf(trainer int) int {
	n := 0
	for _, consumer := range p.Consumer {
		if int(consumer) == trainer {
			n++
		}
	}
	return n
}

// Repeats yields, for each draw of trainer in order, how often the epoch drew its sample before, by
// any trainer. Who consumes a draw is free, so this, and not the trainer's own count, distinguishes
// two draws of a sample.
func (p *Plan) Repeats(trainer int) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if len(p.IDs) == 0 {
			return
		}
		drawn := make([]uint8, slices.Max(p.IDs)+1) // few samples are drawn more than 255 times
		more := map[draw.SampleID]uint32{}          // draws that drawn does not count
		for i, id := range p.IDs {
			before := uint32(drawn[id])
			if before < math.MaxUint8 {
				drawn[id]++
			} else {
				before += more[id]
				more[id]++
			}
			if int(p.Consumer[i]) == trainer && !yield(before) {
				return
			}
		}
	}
}

// Time is the time of place i of this epoch, in epochs.
func (p *Plan) Time(i int32) float64 {
	return float64(p.Epoch) + float64(i)/float64(len(p.IDs))
}
