package scheduler

import (
	"fmt"
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
	// one entry per draw. A loss that is not Reported leaves the score as it is. Scores are finite and
	// not negative. Score does not change the report. It panics if the lengths differ.
	Score(r Report, scores []float32)

	// Initial returns the score of samples that were never scored, for global batches of batch
	// draws, 0 < batch.
	Initial(batch int) float32
}

// NewScorer returns the scorer with the given name: batchloss, logrank or loss. It returns an error
// if the name is unknown.
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

// Initial returns 1, so that samples are equal as long as none is scored. A sample's first loss
// then replaces it.
func (loss) Initial(int) float32 { return 1 }

func checkBatch(r Report, scores []float32) {
	if len(r.Losses) != len(scores) {
		panic(
			fmt.Sprintf("scheduler: Score got %d losses and %d scores.", len(r.Losses),
				len(scores)))
	}
}
