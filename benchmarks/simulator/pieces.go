package simulator

import (
	"fmt"
	"iter"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// A Window is what a sample of arrays is made of: Rows neighbouring rows, in pieces of PerPiece;
// sample i begins with row i. Then memory holds pieces, all equal in size, and counts of draws are
// counts of pieces; a trainer's part of a batch draws each once.
type Window struct{ Rows, PerPiece int }

// newPieces returns what the samples are made of, nil without windows.
func (s *setup) newPieces() *plan.Pieces {
	w := s.Window
	if w.Rows == 0 {
		return nil
	}
	first := func(row int) int { return row / w.PerPiece }
	widest := 1
	for row := range w.PerPiece {
		widest = max(widest, first(row+w.Rows-1)+1)
	}
	samples := s.Trace.Samples()
	p := plan.Pieces{
		Samples: samples, Count: first(samples+w.Rows-2) + 1, Block: 1, Size: s.size,
		Windows: func(sample draw.SampleID) iter.Seq2[draw.SampleID, int] {
			begin := first(int(sample))
			count := first(int(sample)+w.Rows-1) + 1 - begin
			return func(yield func(draw.SampleID, int) bool) { yield(draw.SampleID(begin), count) }
		},
	}
	if widest > 1 {
		p.Block = 8 * widest // as in manifests
	}
	return plan.NewPieces(p)
}

// checkPieces returns an error unless samples of several pieces can be simulated.
func (s *setup) checkPieces() error {
	switch w := s.Window; {
	case w == Window{}:
		return nil
	case w.Rows < 1 || w.PerPiece < 1:
		return fmt.Errorf("windows have %d rows in pieces of %d: both must be at least 1", w.Rows,
			w.PerPiece)
	case s.owner.NewPool != nil || s.scorer != "" || s.drawScorer != "":
		return fmt.Errorf("%s with the sampler %s chooses by sample, and samples of windows share "+
			"pieces: use rankpool, lru or min with --sampler uniform or torch", s.System.Name, s.sampler)
	case s.Trace.SizesBytes != nil:
		return fmt.Errorf("all pieces of windows have one size: leave out the sizes")
	}
	return nil
}

// held returns how many pieces memory may hold: samples if each is one piece.
func (s *setup) held() int {
	if s.pieces != nil {
		return s.pieces.Count
	}
	return s.Trace.Samples()
}
