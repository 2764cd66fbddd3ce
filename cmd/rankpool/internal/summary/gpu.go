package summary

import (
	"fmt"
	"math"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/rankpool/internal/rank"
)

// gpuSentence describes what the GPUs of a run did, as means over them, or returns "" if there is
// nothing to report.
func gpuSentence(run *runlog.Run) string {
	sampled, idle, waited, gpus := run.GPUSeconds()
	if gpus == 0 {
		for i := range run.Nodes {
			for k := range run.Nodes[i].GPUs {
				if run.Nodes[i].GPUs[k].Utilisation.Seen() {
					return "" // training has not started
				}
				gpus++
			}
		}
		if gpus == 0 {
			return ""
		}
		return "GPUs: their utilisation is not available (MIG, or no permission)"
	}
	_, sentence := Bound(sampled, idle, waited)
	if gpus > 1 {
		sentence = fmt.Sprintf("%d %s", gpus, sentence)
	}
	return sentence
}

// Bound names what held training back. GPUs were sampled for sampled seconds, idle for idle of
// those, and training waited for samples in waited of these. The verdict is rank.BoundByIO if it
// waited for a tenth of the time or more; else rank.BoundByCompute if the GPUs were idle for less
// than a tenth; else rank.BoundByOther. There is none for idle GPUs if waited is not known (NaN).
// With several GPUs the seconds are means over them. Both results are empty if sampled is 0.
func Bound(sampled, idle, waited float64) (verdict, sentence string) {
	if !(sampled > 0) {
		return "", ""
	}
	if math.IsNaN(waited) {
		sentence = fmt.Sprintf("GPUs idle %.0f %% of %.0f s; how long training waited for data was not "+
			"measured", 100*idle/sampled, sampled)
		if idle < rank.BoundShare*sampled {
			verdict = rank.BoundByCompute
			sentence += ": " + verdict
		}
		return verdict, sentence
	}
	switch {
	case waited >= rank.BoundShare*sampled:
		verdict = rank.BoundByIO
	case idle < rank.BoundShare*sampled:
		verdict = rank.BoundByCompute
	default:
		verdict = rank.BoundByOther
	}
	waiting := 0.0
	if idle > 0 {
		waiting = waited / idle
	}
	return verdict, fmt.Sprintf("GPUs idle %.0f %% of %.0f s, %.0f %% of it waiting for data: %s",
		100*idle/sampled, sampled, 100*waiting, verdict)
}
