package protocol

import (
	"slices"

	"rankpool/scheduler/draw"
)

// logRank scores a draw by the rank of its loss in the batch: ln(number of smaller losses + b0).
// Equal losses have equal scores. It takes O(B log B).
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, Eq. 6. Differs: the mini-batch is the global
// batch, where SHADE ranks within each process's own; so scores do not depend on how many trainers
// share the batch. Draws that are not reported are not counted.
type logRank struct {
	order []uint64 // (loss, place), reused
}

// logRankBias is b0 of Eq. 6, for which the paper gives no number; the authors' implementation uses
// 10. It must exceed 1, or the batch's smallest loss would get the score 0, never be drawn, and so
// never be scored again. It sets the range: in a global batch of 256 the largest loss gets
// ln(265)/ln(10) = 2.4 times the draws of the smallest, with b0 = 2 it would get 8 times.
const logRankBias = 10

func (s *logRank) Score(r Report, scores []float32) {
	checkBatch(r, scores)
	s.order = s.order[:0]
	for i, l := range r.Losses {
		if Reported(l) {
			s.order = append(s.order, uint64(draw.Sortable(l))<<32|uint64(i))
		}
	}
	slices.Sort(s.order)
	smaller := 0
	for i, word := range s.order {
		if word>>32 != s.order[smaller]>>32 {
			smaller = i
		}
		scores[uint32(word)] = float32(draw.Ln(float64(smaller) + logRankBias))
	}
}

// Initial returns the mean score in a batch of distinct losses, so that a sample not yet seen
// counts as average.
func (s *logRank) Initial(batch int) float32 {
	sum := 0.0
	for k := range batch {
		sum += draw.Ln(float64(k) + logRankBias)
	}
	return float32(sum / float64(batch))
}
