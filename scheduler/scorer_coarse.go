package scheduler

// batchLoss is the coarse score of importance sampling by the forward loss: every draw of a batch
// gets the batch's mean loss. As with the scorer loss, a negative loss counts as 0; a draw whose
// loss is not reported keeps its score and is left out of the mean.
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
			sum += float64(max(l, 0))
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
