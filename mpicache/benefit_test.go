package mpicache

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rankpool/scheduler/stager"
)

// TestBenefitOfATraining checks that a training that is measured gets what it draws, that its
// benefit is known after its second epoch, that measuring it reads the samples of a twentieth of
// that epoch, and that a single training is measured only if the user asks for it.
func TestBenefitOfATraining(t *testing.T) {
	const batchSize, batches, epochs = 2, 200, 3
	for _, c := range []struct {
		ranks    int
		benefit  Benefit
		measured int
	}{
		{1, BenefitAuto, 0},
		{1, BenefitNever, 0},
		{1, BenefitAlways, 1},
		{2, BenefitAlways, 1},
		{3, BenefitAlways, 1},
	} {
		t.Run(fmt.Sprintf("%d ranks, %s", c.ranks, Benefits[c.benefit]), func(t *testing.T) {
			samples := batchSize * batches * c.ranks
			plain := newCluster(t, c.ranks, samples, 1<<20)
			want := plain.train(c.ranks, batchSize, epochs, "torch")
			plain.close()
			cl := newCluster(t, c.ranks, samples, 1<<20, patient,
				func(cfg *Config) { cfg.Benefit = c.benefit })
			// In the first epoch, ranks that begin later than others may read a few samples twice.
			first := 0
			cl.between = func(epoch, batch int) {
				if epoch == 1 && batch == 0 {
					first = cl.storage.allReads()
				}
			}
			if got := cl.train(c.ranks, batchSize, epochs, "torch"); !slices.Equal(got, want) {
				t.Error("training gets other samples")
			}
			for rank, n := range cl.nodes {
				m := n.rank.Sets[0].Find("").Measured(1)
				if m.BatchSeconds > 0 != (c.measured > 0) ||
					m.BatchSeconds > 0 && m.UncachedBatchSeconds <= 0 {
					t.Errorf("rank %d has measured %+v", rank, m)
				}
				if jobs := n.Stats().Jobs; len(jobs) != c.measured {
					t.Errorf("rank %d: trainings %+v", rank, jobs)
				}
			}
			cl.close()
			reads := cl.storage.allReads() - first
			if want := c.measured * samples / 20; reads != want {
				t.Errorf("%d samples were read after the first epoch, want %d", reads, want)
			}
		})
	}
}

// measuredAs returns a state machine that has measured a benefit.
func measuredAs(ratio float64) *stager.Benefit {
	b := stager.NewBenefit(0, 1)
	b.Begin(0, 0, 200, true)
	p := b.Begin(1, 0, 200, true)
	at := time.Duration(0)
	for batch := range 200 {
		at += time.Second
		if batch >= p.Begin && batch < p.End {
			at += time.Duration((ratio - 1) * float64(time.Second))
		}
		b.Ready(1, batch, at)
	}
	return b
}

// TestMemoryIsDividedByBenefit checks what two data sets get of a rank's memory, which holds half
// of them.
func TestMemoryIsDividedByBenefit(t *testing.T) {
	for _, c := range []struct {
		ratios [2]float64 // 0: unknown
		want   [2]float64 // of all memory
	}{
		{[2]float64{0, 0}, [2]float64{0.5, 0.5}},
		{[2]float64{0, 2}, [2]float64{0.5, 0.5}},
		{[2]float64{3, 2}, [2]float64{1, 0}},
		{[2]float64{2, 3}, [2]float64{0, 1}},
		{[2]float64{1.05, 1.2}, [2]float64{0, 1}},
		{[2]float64{1.05, 1.05}, [2]float64{0.5, 0.5}},
	} {
		const bytes = 1 << 17
		cl := newCluster(t, 1, 2000, bytes, func(cfg *Config) {
			cfg.SlabBytes = 2*bytes + 2<<20
			other := cfg.Data[0]
			other.Name = "other"
			cfg.Data = append(cfg.Data, other)
		})
		n := cl.nodes[0]
		n.shrinker.gain = func(set int) float64 {
			if ratio := c.ratios[set]; ratio > 0 {
				return measuredAs(ratio).Gain(1)
			}
			return -1
		}
		for i, got := range n.shrinker.partitions() {
			if want := int64(c.want[i] * 2 * bytes); got < want-1 || got > want {
				t.Errorf("%v: data set %d gets %d of %d, want %d", c.ratios, i, got, 2*bytes, want)
			}
		}
	}
}
