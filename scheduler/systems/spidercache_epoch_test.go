package systems

import (
	"fmt"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
)

// spiderTraining trains one epoch after the other, each with a cut before its end.
type spiderTraining struct {
	t       *testing.T
	sampler draw.Sampler
	pool    *spiderPool // gets what training reports
	planner *spiderPool // gets what pool has seen at the cuts
	random  uint64
}

func newSpiderTraining(t *testing.T, capacity int64) *spiderTraining {
	t.Helper()
	const samples = 300
	sampler, err := draw.NewSampler(draw.SamplerConfig{
		Name: "weighted", Samples: samples, Seed: 5, BatchSize: 20, World: 1,
		Floor: draw.NoFloor,
	})
	if err != nil {
		t.Fatal(err)
	}
	labels := make([]int32, samples)
	for id := range labels {
		labels[id] = int32(id % 3)
	}
	values := Values{"by_batch": 0, "alpha": 0.9, "r_start": 0.8, "r_end": 0.4}
	return &spiderTraining{
		t: t, sampler: sampler, pool: spiderTest(samples, capacity, labels, values),
		planner: spiderTest(samples, capacity, labels, values),
	}
}

// cut makes both choose an epoch, and returns its draws.
func (s *spiderTraining) cut(epoch int) []draw.SampleID {
	seen, told := s.pool.epochs.latest[0], s.planner.epochs.latest[0]
	copy(told.embeddings, seen.embeddings)
	copy(told.has, seen.has)
	ratio := *s.pool.ratio
	s.planner.ratio, s.planner.trained = &ratio, s.pool.trained
	_, weights := s.pool.Resample(0, epoch, nil)
	if _, planned := s.planner.Resample(0, epoch, nil); !slices.Equal(weights, planned) {
		s.t.Fatalf("epoch %d is drawn by other weights", epoch)
	}
	return s.sampler.Draw(epoch, weights).IDs
}

// plan returns what the planner answers to an epoch.
func (s *spiderTraining) plan(epoch int, ids []draw.SampleID) (all []Answer) {
	s.planner.Begin(0, epoch, ids)
	for part := range slices.Chunk(ids, 20) {
		b, answers := spiderBatch(part...), make([]Answer, len(part))
		s.planner.Batch(b, answers)
		s.planner.Promote(b, servedBy(answers))
		all = append(all, answers...)
	}
	return all
}

// train trains a batch, and returns what was answered.
func (s *spiderTraining) train(epoch int, ids []draw.SampleID) []Answer {
	b, answers := spiderBatch(ids...), make([]Answer, len(ids))
	s.pool.Batch(b, answers)
	place := map[draw.SampleID]float32{}
	served := servedBy(answers)
	for _, id := range served {
		s.random = s.random*6364136223846793005 + 1442695040888963407
		place[id] = float32(id%9)*10 + float32(s.random>>40)/(1<<24)*float32(20-epoch)
	}
	r := spiderReport(place, served...)
	for i := range r.Losses {
		r.Losses[i] = float32(len(ids)-i) / float32(10*(1+epoch))
	}
	s.pool.Trained(b, r)
	return answers
}

func servedBy(answers []Answer) []draw.SampleID {
	served := make([]draw.SampleID, len(answers))
	for i, a := range answers {
		served[i] = a.Served
	}
	return served
}

// TestSpiderCacheIsKnownAtTheCut checks that a pool that gets embeddings and losses only at the
// cuts answers every epoch, before it is trained, like the pool that follows training.
func TestSpiderCacheIsKnownAtTheCut(t *testing.T) {
	for _, capacity := range []int64{30, 60, 120} {
		t.Run(fmt.Sprint(capacity), func(t *testing.T) {
			s, substituted := newSpiderTraining(t, capacity), 0
			ids := s.cut(0)
			for epoch := range 8 {
				drawn := ids
				ids = s.pool.Repeat(0, epoch, drawn)
				if !slices.Equal(ids, s.planner.Repeat(0, epoch, drawn)) {
					t.Fatalf("epoch %d: the planner repeats other draws", epoch)
				}
				want := s.plan(epoch, ids)
				s.pool.Begin(0, epoch, ids)
				var next []draw.SampleID
				for lo := 0; lo < len(ids); lo += 20 {
					got := s.train(epoch, ids[lo:lo+20])
					if !slices.Equal(got, want[lo:lo+20]) {
						t.Fatalf("epoch %d, draw %d: the answers are %v, planned %v", epoch, lo, got,
							want[lo:lo+20])
					}
					for i, a := range got {
						if a.Served != ids[lo+i] {
							substituted++
						}
					}
					if lo == 240 {
						next = s.cut(epoch + 1)
					}
				}
				ids = next
			}
			if substituted == 0 || s.pool.ratio.ratio == s.pool.ratio.start {
				t.Errorf("%d draws were substituted, the ratio is %v: this test says too little",
					substituted, s.pool.ratio.ratio)
			}
		})
	}
}
