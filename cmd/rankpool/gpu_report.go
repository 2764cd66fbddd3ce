package main

import (
	"fmt"

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
	_, sentence := bound(sampled, idle, waited)
	if gpus > 1 {
		sentence = fmt.Sprintf("%d %s", gpus, sentence)
	}
	return sentence
}
