package schedulertest

import "testing"

func TestLosses(t *testing.T) {
	losses := Losses(t)
	mean := func(row []float32) float64 {
		sum := 0.0
		for _, l := range row {
			if !(l >= 0 && l < 100) {
				t.Fatalf("a loss is %v", l)
			}
			sum += float64(l)
		}
		return sum / float64(len(row))
	}
	if first, last := mean(losses[0]), mean(losses[lossEpochs-1]); last >= first/2 {
		t.Errorf(
			"mean losses of %.3f in the first epoch and %.3f in the last do not look like training",
			first, last)
	}
}
