package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Report is training's report about one global batch, one entry per draw.
type Report struct {
	IDs        []SampleID  // that were trained on
	Losses     []float32   // those that are not Reported count as missing
	Embeddings [][]float32 // nil when training reports none
}

// A Scorer turns what training reports of one global batch into importance. It keeps scratch memory
// between calls, so it must not be used concurrently; its results depend on the arguments alone.
type Scorer interface {
	// Score sets scores[i], the importance of draw i of a global batch, from r.Losses[i]; both have
	// one entry a draw. A loss that is not Reported leaves the score as it is. Scores are finite
	// and not negative. The report is left as it is. Score panics when the lengths differ.
	Score(r Report, scores []float32)

	// Initial returns the score of samples that were never scored, for global batches of batch
	// draws, 0 < batch.
	Initial(batch int) float32
}

// NewScorer returns the scorer of that name: batchloss, logrank or loss. It returns an error when
// the name is unknown.
func NewScorer(name string) (Scorer, error) {
	switch name {
	case "batchloss":
		return batchLoss{}, nil
	case "logrank":
		return &logRank{}, nil
	case "loss":
		return loss{}, nil
	}
	return nil, fmt.Errorf("scheduler: unknown scorer %q, the known ones are %s", name,
		strings.Join(ScorerNames(), ", "))
}

// ScorerNames returns the names that NewScorer knows, sorted.
func ScorerNames() []string { return []string{"batchloss", "logrank", "loss"} }

// DefaultScorer returns the name of the scorer that goes with a sampler: logrank for pads, loss for
// the other weighted samplers, and "" for those that use no scores.
func DefaultScorer(sampler string) string {
	switch sampler {
	case "pads":
		return "logrank"
	case "weighted", "weighted-once", "subset", "selective":
		return "loss"
	}
	return ""
}

// loss uses the loss itself as the score. A negative loss counts as 0.
type loss struct{}

func (loss) Score(r Report, scores []float32) {
	checkBatch(r, scores)
	for i, l := range r.Losses {
		if Reported(l) {
			scores[i] = max(l, 0)
		}
	}
}

// Initial is 1, so that samples are equal as long as none is scored. A sample's first loss then
// replaces it.
func (loss) Initial(int) float32 { return 1 }

func checkBatch(r Report, scores []float32) {
	if len(r.Losses) != len(scores) {
		panic(
			fmt.Sprintf("scheduler: Score got %d losses and %d scores.", len(r.Losses),
				len(scores)))
	}
}

// logRank scores a draw by the rank of its loss in the batch: ln(number of smaller losses + b0).
// Equal losses have equal scores. It takes O(B log B).
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, Eq. 6. Differs: the mini-batch is the global
// batch, where SHADE ranks within each process's own; so scores do not depend on how many trainers
// share the batch. Draws that are not reported are not counted.
type logRank struct {
	order []uint64 // (loss, place), reused
}

// logRankBias is b0 of Eq. 6, for which the paper gives no number; the authors' implementation has
// 10. It must exceed 1, or the batch's smallest loss would get the score 0, never be drawn, and so
// never be scored again. It sets the range: in a global batch of 256 the largest loss gets
// ln(265)/ln(10) = 2.4 times the draws of the smallest, with b0 = 2 it would get 8 times.
const logRankBias = 10

func (s *logRank) Score(r Report, scores []float32) {
	checkBatch(r, scores)
	s.order = s.order[:0]
	for i, l := range r.Losses {
		if Reported(l) {
			s.order = append(s.order, uint64(sortable(l))<<32|uint64(i))
		}
	}
	slices.Sort(s.order)
	smaller := 0
	for i, word := range s.order {
		if word>>32 != s.order[smaller]>>32 {
			smaller = i
		}
		scores[uint32(word)] = float32(ln(float64(smaller) + logRankBias))
	}
}

// Initial is the mean score in a batch of distinct losses, so that a sample that was not yet seen
// counts as average.
func (s *logRank) Initial(batch int) float32 {
	sum := 0.0
	for k := range batch {
		sum += ln(float64(k) + logRankBias)
	}
	return float32(sum / float64(batch))
}

// sortable maps a number that is not NaN to an integer with the same order; -0 and 0 are the same.
func sortable(f float32) uint32 {
	b := math.Float32bits(f + 0) // -0 + 0 = 0
	if b>>31 == 1 {
		return ^b
	}
	return b | 1<<31
}
