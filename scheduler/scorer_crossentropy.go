package scheduler

import (
	"fmt"
	"math"
)

// CrossEntropy returns the loss of one sample from its logits, one a class, and its label's place among them:
// -ln softmax(logits)[label], in [0, +Inf). The sum is taken relative to the largest logit, so it does not overflow. It
// uses math.Exp, whose last bit may differ between architectures. It panics when label is no class.
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, Eq. 3 and 4, with a one-hot truth.
func CrossEntropy(logits []float32, label int) float64 {
	if label < 0 || label >= len(logits) {
		panic(fmt.Sprintf("scheduler: CrossEntropy got label %d for %d classes.", label, len(logits)))
	}
	top := logits[0]
	for _, r := range logits {
		top = max(top, r)
	}
	sum := 0.0
	for _, r := range logits {
		sum += math.Exp(float64(r) - float64(top))
	}
	return math.Log(sum) + float64(top) - float64(logits[label])
}

// CrossEntropies decomposes the loss of a mini-batch: it sets losses[k] to the loss of sample k and returns their mean.
// logits has a row of len(logits)/len(labels) classes a sample, row-major. It panics when the lengths do not fit or the
// batch is empty.
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.1, Eq. 3 to 5.
func CrossEntropies(logits []float32, labels []int, losses []float32) (mean float64) {
	samples := len(labels)
	if samples == 0 || len(losses) != samples || len(logits)%samples != 0 {
		panic(fmt.Sprintf("scheduler: CrossEntropies got %d logits, %d labels and %d losses.",
			len(logits), samples, len(losses)))
	}
	classes := len(logits) / samples
	for k, label := range labels {
		e := CrossEntropy(logits[k*classes:][:classes], label)
		losses[k] = float32(e)
		mean += e / float64(samples)
	}
	return mean
}
