package main

import (
	"fmt"

	"rankpool/mpicache"
)

// gpuLine returns the sentence about the GPUs of a run, from the "node" events of its log in their order, with means
// over the GPUs; "" when none was sampled.
// Sums of a rank that was started again begin at 0: what it had before counts.
func gpuLine(events []mpicache.RankStats) string {
	type key struct {
		rank int
		uuid string
	}
	newest := map[key]idleSums{}
	var all idleSums
	sampled, told := map[key]bool{}, false
	for _, e := range events {
		for _, g := range e.Machine.GPUs {
			k := key{e.Rank, g.UUID}
			before, now := newest[k], idleSums{g.SampledSeconds, g.IdleSeconds, g.WaitedSeconds}
			newest[k] = now
			if now.sampled < before.sampled {
				before = idleSums{}
			}
			all.sampled += now.sampled - before.sampled
			all.idle += now.idle - before.idle
			all.waited += now.waited - before.waited
			told = told || g.Utilisation != nil
			if now.sampled > 0 {
				sampled[k] = true
			}
		}
	}
	if len(newest) > 0 && len(sampled) == 0 && !told {
		return "GPUs: their utilisation is not available (MIG, or no permission)"
	}
	n := float64(len(sampled))
	_, sentence := bound(all.sampled/n, all.idle/n, all.waited/n)
	if len(sampled) > 1 {
		sentence = fmt.Sprintf("%d %s", len(sampled), sentence)
	}
	return sentence
}
