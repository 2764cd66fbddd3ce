package scheduler

import (
	"math"
	"slices"
)

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
