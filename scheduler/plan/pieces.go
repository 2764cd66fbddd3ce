package plan

import (
	"iter"
	"math"
	"slices"

	"rankpool/scheduler/draw"
)

// Pieces say what the samples of a data set are made of, where that is not one range of bytes each.
// Training draws samples; memory holds pieces, and samples share them. Pieces have ids like
// samples: 0 ≤ id < Count. Apart from Scores, Pieces do not change.
type Pieces struct {
	Samples, Count int
	Block          int // of so many neighbouring pieces one rank is the owner
	// Windows yields neighbouring pieces of a sample: the first, and how many.
	Windows func(sample draw.SampleID) iter.Seq2[draw.SampleID, int]
	Size    func(piece draw.SampleID) int64

	// Scores are those of all samples as they are now, of the training that uses this copy; nil: they
	// do not matter.
	Scores []float32

	uses *pieceUses
}

// pieceUses has the samples of each piece: the places at[piece] to at[piece+1] of samples.
type pieceUses struct {
	at      []uint32
	samples []draw.SampleID
	most    int // the most pieces of a sample
}

// NewPieces completes p. It takes 4 bytes for each piece, and for each piece of each sample.
func NewPieces(p Pieces) *Pieces {
	at, total := make([]uint32, p.Count+2), 0
	p.uses = &pieceUses{}
	for s := range draw.SampleID(p.Samples) {
		before := total
		for piece := range p.Of(s) {
			at[piece+2]++
			total++
		}
		p.uses.most = max(p.uses.most, total-before)
	}
	for i := range p.Count {
		at[i+2] += at[i+1]
	}
	samples := make([]draw.SampleID, total)
	for s := range draw.SampleID(p.Samples) {
		for piece := range p.Of(s) {
			samples[at[piece+1]] = s
			at[piece+1]++
		}
	}
	p.uses.at, p.uses.samples = at, samples
	return &p
}

// Widest is the most pieces that a sample has.
func (p *Pieces) Widest() int { return max(p.uses.most, 1) }

// Of yields the pieces of a sample, in order; a piece may be in two of its windows.
func (p *Pieces) Of(sample draw.SampleID) iter.Seq[draw.SampleID] {
	return func(yield func(draw.SampleID) bool) {
		for first, n := range p.Windows(sample) {
			for i := range draw.SampleID(n) {
				if !yield(first + i) {
					return
				}
			}
		}
	}
}

// using returns the samples that a piece is part of.
func (p *Pieces) using(piece draw.SampleID) []draw.SampleID {
	return p.uses.samples[p.uses.at[piece]:p.uses.at[piece+1]]
}

// owner returns the rank that owns most bytes of a sample; the first of several.
func (p *Pieces) owner(sample draw.SampleID, ranks int) int {
	var few [8]ownedBytes
	owned, most := few[:0], 0
	for piece := range p.Of(sample) {
		rank := draw.OwnerOfBlock(piece, p.Block, ranks)
		i := slices.IndexFunc(owned, func(o ownedBytes) bool { return o.rank == rank })
		if i < 0 {
			i, owned = len(owned), append(owned, ownedBytes{rank: rank})
		}
		if owned[i].bytes += p.Size(piece); owned[i].bytes > owned[most].bytes {
			most = i
		}
	}
	if len(owned) == 0 {
		return draw.Owner(sample, ranks)
	}
	return owned[most].rank
}

type ownedBytes struct {
	rank  int
	bytes int64
}

// PiecesOf returns the pieces of some samples without repeats, in the order in which they first
// come: those of a trainer's part of a batch.
func (p *Pieces) PiecesOf(samples []draw.SampleID) (pieces []draw.SampleID) {
	seen := map[draw.SampleID]bool{}
	for _, s := range samples {
		for piece := range p.Of(s) {
			if !seen[piece] {
				seen[piece], pieces = true, append(pieces, piece)
			}
		}
	}
	return pieces
}

// expand returns the plan of the pieces: a trainer's part of each global batch has those of its
// samples, without repeats, in the order in which they first come. The batches of the two plans are
// the same; those of pieces differ in length.
func (p *Pieces) expand(of *Plan, rank int) *Plan {
	e := &Plan{World: of.World, Ranks: of.Ranks, Processes: of.Processes, block: p.Block}
	ids, seen := make([]draw.SampleID, 0, len(of.IDs)), make([]uint32, p.Count)
	parts := make([][]draw.SampleID, len(of.World)) // of a batch, by trainer
	turn := uint32(0)                               // counts parts
	e.ends = make([]int32, of.Batches())
	for b := range e.ends {
		lo, hi := of.Range(b)
		for i := lo; i < hi; i++ {
			t := of.Consumer[i]
			parts[t] = append(parts[t], of.IDs[i])
		}
		before := len(ids)
		for t, part := range parts {
			turn++
			for _, s := range part {
				for piece := range p.Of(s) {
					if seen[piece] != turn {
						seen[piece] = turn
						ids, e.Consumer = append(ids, piece), append(e.Consumer, uint16(t))
					}
				}
			}
			parts[t] = part[:0]
		}
		e.ends[b], e.Batch = int32(len(ids)), max(e.Batch, len(ids)-before)
	}
	e.Draws = of.Pieces(ids, p.next(of))
	e.View = newView(e, p.Count, rank)
	return e
}

// next predicts when a piece is used after an epoch: when the first of its samples is drawn.
func (p *Pieces) next(of *Plan) func(draw.SampleID, float32) float64 {
	return func(piece draw.SampleID, factor float32) float64 {
		soonest := math.Inf(1)
		for _, s := range p.using(piece) {
			score := float32(0)
			if p.Scores != nil {
				score = p.Scores[s] * factor
			}
			soonest = min(soonest, of.Next(s, score))
		}
		return soonest
	}
}

// Held returns the plan of what memory holds: of the pieces, if samples are made of them.
func (p *Plan) Held() *Plan {
	if p.pieces != nil {
		return p.pieces
	}
	return p
}
