package summary

import (
	"fmt"

	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/runlog"
)

// gpuSentence says what the GPUs of a run did, with means over them; "" when there is nothing to tell.
func gpuSentence(run *runlog.Run) string {
	sampled, idle, waited, gpus := run.GPUSeconds()
	if gpus == 0 {
		for i := range run.Nodes {
			for k := range run.Nodes[i].GPUs {
				if run.Nodes[i].GPUs[k].Utilisation.Seen() {
					return "" // training has not begun
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

// Bound says what held training back in so many seconds in which GPUs were sampled, idle for idle of them, and in waited of those
// training waited for samples: boundByIO when it waited for a tenth of the time or more; else boundByCompute when the GPUs were idle for
// less than a tenth; else boundByOther. For several GPUs the seconds are means over them. Both results are empty when sampled is 0:
// there is nothing to tell.
func Bound(sampled, idle, waited float64) (verdict, sentence string) {
	if !(sampled > 0) {
		return "", ""
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
