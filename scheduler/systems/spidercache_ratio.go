package systems

import (
	"math"

	"rankpool/scheduler/protocol"
)

// spiderRatio is the Elastic Cache Manager: it chooses the importance cache's share of the memory.
//
// Source: Wang et al., "SpiderCache", ICPP 2025, §4.3, Eq. 5–8. Differs: it decides once per epoch,
// when there is an accuracy, and counts t and T in epochs; Algorithm 1 calls it every batch. An
// accuracy is that of the epoch before the one under way, see accuracyCurve. Where training
// measures none, the share of an epoch's reported losses below ln 2 replaces it: such a loss means
// p > 1/2 for the true class, so a right prediction. Negative growth counts as none; otherwise u
// could leave [0, 1).
//
// Eq. 5 is the sign of one slope. The deviation is that of the samples that were scored. Its slope
// is computed as in Eq. 6, over a smoothed window, so there is none before the window is full. β is
// "triggered" (§4.3) once and stays. A ratio that has moved does not move back when u grows:
// computed for each epoch anew, noise would take it back to r_start, while it falls in Fig. 11.
type spiderRatio struct {
	start, end, gamma float64
	epochs            int // T

	active     bool      // β
	ratio      float64   // of the epoch under way
	deviations []float64 // σ, of the scores at the end of each epoch
	accuracyCurve
	rightness
}

// accuracyCurve has an accuracy for each epoch, the newest last: those that training measures or,
// before it has measured any, shares of losses. An epoch without one is left out.
//
// Training measures an epoch's accuracy after the plan of the next one was made, so it counts for
// the plan after that.
type accuracyCurve struct {
	accuracies []float64
	measured   bool    // by training
	told       float32 // by training, see Measurer
}

func newAccuracyCurve() accuracyCurve { return accuracyCurve{told: float32(math.NaN())} }

// extend adds an accuracy; share is the one to use if training measures none.
func (c *accuracyCurve) extend(share float64) {
	told := c.told
	c.told = float32(math.NaN())
	switch {
	case protocol.Reported(told) && !c.measured:
		c.accuracies, c.measured = []float64{float64(told)}, true
	case protocol.Reported(told):
		c.accuracies = append(c.accuracies, float64(told))
	case !c.measured:
		c.accuracies = append(c.accuracies, share)
	}
}

// rightness counts the losses that were reported since the last cut, and those of right
// predictions.
type rightness struct{ right, reported int }

func newSpiderRatio(start, end, gamma float64, epochs int) *spiderRatio {
	return &spiderRatio{
		start: start, end: end, gamma: gamma, epochs: epochs, ratio: start,
		accuracyCurve: newAccuracyCurve(),
	}
}

// elastic reports whether there are ever two caches.
func (c *spiderRatio) elastic() bool { return c.start < 1 || c.end < 1 }

// observe counts the losses that training reports.
func (c *rightness) observe(losses []float32) {
	for _, l := range losses {
		if !protocol.Reported(l) {
			continue
		}
		c.reported++
		if l < ln2 {
			c.right++
		}
	}
}

// next ends an epoch and returns the ratio for the following one, whose number is epoch. scores are
// those of all samples that have one.
func (c *spiderRatio) next(epoch int, scores []float32) float64 {
	accuracy := 0.0
	if c.reported > 0 {
		accuracy = float64(c.right) / float64(c.reported)
	}
	c.extend(accuracy)
	c.right, c.reported = 0, 0
	c.deviations = append(c.deviations, deviation(scores))
	if len(c.deviations) >= spiderWindow && spiderGrowth(savitzkyGolay(c.deviations)) < 0 {
		c.active = true
	}
	if !c.active {
		return c.start
	}
	u := spiderPenalty(spiderGrowth(savitzkyGolay(c.accuracies)), c.gamma)
	if r := spiderImpRatio(c.start, c.end, float64(epoch)/float64(c.epochs),
		u); math.Abs(r-c.start) > math.Abs(c.ratio-c.start) {
		c.ratio = r
	}
	return c.ratio
}

// deviation returns the standard deviation of scores, 0 when there are none.
func deviation(scores []float32) float64 {
	mean, sum := 0.0, 0.0
	for _, s := range scores {
		mean += float64(s)
	}
	n := float64(max(len(scores), 1))
	mean /= n
	for _, s := range scores {
		d := float64(s) - mean
		sum += float64(d * d)
	}
	return math.Sqrt(sum / n)
}

// spiderWindow is m, the window of the filter and of Eq. 6. Source: §4.3, "typically set to 5".
const spiderWindow = 5

// savitzkyGolay smooths a series: each value becomes that of the parabola fitted by least squares
// to the five values around it, and at the ends to the first and the last five. A series of fewer
// than five values stays as it is.
//
// Source: Savitzky and Golay, Analytical Chemistry 1964.
func savitzkyGolay(series []float64) []float64 {
	smooth := append([]float64(nil), series...)
	if len(series) < spiderWindow {
		return smooth
	}
	for i := range smooth {
		first := min(max(i-2, 0), len(series)-spiderWindow)
		sum := 0.0
		for k, weight := range savitzkyGolayWeights[i-first] {
			sum += float64(weight * series[first+k])
		}
		smooth[i] = sum / 35
	}
	return smooth
}

// savitzkyGolayWeights are the weights of five values, times 35, in the fitted parabola at each of
// their places.
var savitzkyGolayWeights = [spiderWindow][spiderWindow]float64{
	{31, 9, -3, -5, 3},
	{9, 13, 12, 6, -5},
	{-3, 12, 17, 12, -3},
	{-5, 6, 12, 13, 9},
	{3, -5, -3, 9, 31},
}

// spiderGrowth is Eq. 6, whose sum telescopes: the mean growth over the last five steps, or over
// all if there are fewer.
func spiderGrowth(smooth []float64) float64 {
	t := len(smooth) - 1
	m := min(spiderWindow, t)
	if m < 1 {
		return 0
	}
	return (smooth[t] - smooth[t-m]) / float64(m)
}

// spiderPenalty is u of Eq. 7, in [0, 1).
func spiderPenalty(growth, gamma float64) float64 {
	growth = max(growth, 0)
	return growth / (gamma + growth)
}

// spiderImpRatio is Eq. 8 with β = 1, elapsed = t/T in [0, 1].
func spiderImpRatio(start, end, elapsed, u float64) float64 {
	return start - float64((start-end)*float64(elapsed*fractionalPower(elapsed, u)))
}

// fractionalPower returns x^u for 0 ≤ x and 0 ≤ u < 1: the product of x^(1/2), x^(1/4), … by the
// binary digits of u, to 2^-40. Unlike math.Pow it has the same bits on every machine, because IEEE
// 754 rounds square roots and products exactly.
func fractionalPower(x, u float64) float64 {
	power, root := 1.0, x
	for range 40 {
		root = math.Sqrt(root)
		u *= 2
		if u >= 1 {
			power *= root
			u--
		}
	}
	return power
}
