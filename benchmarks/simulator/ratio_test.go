package simulator

import (
	"cmp"
	"slices"
	"testing"
)

// TestImpRatio checks that SpiderCache's ratio on recorded losses begins at r_start, never rises,
// and ends near r_end (Fig. 11), whether it chooses by epoch or, in the long matrix, by batch. A
// system without two caches has none.
func TestImpRatio(t *testing.T) {
	trace := loadShipped(t)
	run := func(system string, trace *Trace, byBatch float64) []float64 {
		values := map[string]float64{"by_batch": byBatch}
		r, err := Run(Config{
			System: mustFind(t, system), Trace: trace, Capacity: 0.2, Ranks: 1, BatchSize: 64,
			SkipEpochs: 3, Values: values,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.ImpRatio
	}
	ways := []float64{0, 1}
	if testing.Short() {
		ways = ways[:1]
	}
	for _, byBatch := range ways {
		ratio := run("spidercache", trace, byBatch)
		if len(ratio) != len(trace.Losses) || ratio[0] != 0.9 || ratio[len(ratio)-1] > 0.82 ||
			!slices.IsSortedFunc(ratio, func(a, b float64) int { return cmp.Compare(b, a) }) {
			t.Errorf("by_batch=%v: the ratio is %v, want it to fall from 0.9 to 0.8", byBatch, ratio)
		}
	}
	if ratio := run("spidercache-imp", syntheticTrace(600, 6), 0); ratio != nil {
		t.Errorf("the importance cache alone has the ratio %v", ratio)
	}
}
