package protocol

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"rankpool/scheduler/draw"
)

// Report is training's report about one global batch, one entry per draw.
type Report struct {
	IDs        []draw.SampleID // that were trained on
	Losses     []float32       // those that are not Reported count as missing
	Embeddings [][]float32     // nil when training reports none
}

// Reported reports whether a loss counts: it does when it is finite. NaN and the infinities, which
// mixed precision gives now and then, count as not reported: the sample keeps the score that it
// has. An infinite loss used as a score would leave no draws to other samples. Whatever reads
// losses calls this function, so that ranks and simulator agree.
func Reported(loss float32) bool { return loss <= math.MaxFloat32 && loss >= -math.MaxFloat32 }

// ReportedEmbedding reports whether an embedding counts: all its numbers must be finite. Otherwise
// the sample keeps its last one, whatever its loss.
func ReportedEmbedding(embedding []float32) bool {
	return !slices.ContainsFunc(embedding, func(x float32) bool { return !Reported(x) })
}

// A Scorer turns what training reports of one global batch into importance. It keeps scratch memory
// between calls, so it must not be used concurrently; its results depend on the arguments alone.
type Scorer interface {
	// Score sets scores[i], the importance of draw i of a global batch, from r.Losses[i]; both have
	// one entry per draw. A loss that is not Reported leaves the score as it is. Scores are finite.
	// Score does not change the report. It panics if the lengths differ.
	Score(r Report, scores []float32)

	// Initial returns the score of samples that were never scored, for global batches of batch
	// draws, 0 < batch.
	Initial(batch int) float32
}

// scorers has one entry per scorer.
var scorers = map[string]func() Scorer{
	"batchloss": func() Scorer { return batchLoss{} },
	"logrank":   func() Scorer { return &logRank{} },
	"loss":      func() Scorer { return loss{} },
}

// NewScorer returns the scorer with the given name: batchloss, logrank or loss. It returns an error
// if the name is unknown.
func NewScorer(name string) (Scorer, error) {
	maker, ok := scorers[name]
	if !ok {
		return nil, fmt.Errorf("scheduler: unknown scorer %q, the known ones are %s", name,
			strings.Join(ScorerNames(), ", "))
	}
	return maker(), nil
}

// ScorerNames returns the names that NewScorer knows, sorted.
func ScorerNames() []string { return slices.Sorted(maps.Keys(scorers)) }

// DefaultScorer returns the name of the scorer that goes with a sampler: logrank for pads, loss for
// the other weighted samplers, and "" for those that use no scores.
func DefaultScorer(sampler string) string {
	switch draw.KindOf(sampler) {
	case "pads":
		return "logrank"
	case "weighted", "weighted-once", "subset", "selective", "thrifty":
		return "loss"
	}
	return ""
}

// loss uses the loss itself as the score, of any sign.
type loss struct{}

func (loss) Score(r Report, scores []float32) {
	checkBatch(r, scores)
	for i, l := range r.Losses {
		if Reported(l) {
			scores[i] = l
		}
	}
}

// Initial returns 1, so that samples are equal as long as none is scored. A sample's first loss
// then replaces it.
func (loss) Initial(int) float32 { return 1 }

// batchLoss is the coarse score of importance sampling by the forward loss: every draw of a batch
// gets the batch's mean loss. A draw whose loss is not reported keeps its score and is
// left out of the mean.
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, "Loss Decomposition", Eq. 5: the score that
// SHADE decomposes, and that its variants of §6.2 use. Differs: the mean is over the global batch,
// where the paper's is over a process's mini-batch, so that scores do not depend on how many
// trainers share the batch.
type batchLoss struct{}

func (batchLoss) Score(r Report, scores []float32) {
	checkBatch(r, scores)
	sum, reported := 0.0, 0
	for _, l := range r.Losses {
		if Reported(l) {
			sum += float64(l)
			reported++
		}
	}
	for i, l := range r.Losses {
		if Reported(l) {
			scores[i] = float32(sum / float64(reported))
		}
	}
}

// Initial returns 1, as with the scorer loss.
func (batchLoss) Initial(int) float32 { return 1 }

func checkBatch(r Report, scores []float32) {
	if len(r.Losses) != len(scores) {
		panic(fmt.Sprintf("scheduler: Score got %d losses and %d scores.", len(r.Losses), len(scores)))
	}
}
