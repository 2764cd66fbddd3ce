package systems

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

// unknown is the accuracy of training that measures none.
var unknown = float32(math.NaN())

func newTestLearner(t *testing.T, trainers int, capacityBytes int64) *Learner {
	t.Helper()
	l, err := NewLearner(ChooserConfig{
		System: &shadeSystem, World: make([]int32, trainers), Ranks: 1, CapacityBytes: capacityBytes,
		Sampler: draw.SamplerConfig{Samples: 200, Seed: 3, BatchSize: 8 / trainers, World: trainers},
		Size:    func(draw.SampleID) int64 { return 1 }, Initial: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// teach lets a learner follow epochs, and returns what it has learned by the cut of the last one.
func teach(l *Learner, from, to int) (scores []float32, learned []byte) {
	scores = cutOf(from)
	for epoch := from; epoch < to; epoch++ {
		ids := l.Draw(epoch, scores).IDs
		scores = cutOf(epoch + 1)
		losses := make([]float32, 8)
		for b := range len(ids) / 8 {
			part := ids[8*b : 8*b+8]
			for i, id := range part {
				losses[i] = scores[id] / 1000
			}
			of := make([]float32, len(part))
			for i, id := range part {
				of[i] = scores[id]
			}
			l.Learn(protocol.Folded{Epoch: epoch, Batch: b, IDs: part, Losses: losses}, of)
		}
		learned = l.Cut(unknown)
	}
	return scores, learned
}

// TestLearnerGoesOn checks that a learner that begins with what another one learned draws and
// learns like that one, even with fewer processes.
func TestLearnerGoesOn(t *testing.T) {
	whole := newTestLearner(t, 4, 40)
	scores, learned := teach(whole, 0, 5)
	for _, trainers := range []int{4, 2, 1} {
		later := newTestLearner(t, trainers, 40)
		fresh := later.Draw(5, scores).IDs
		if err := later.Begin(scores, learned); err != nil {
			t.Fatal(err)
		}
		ids := later.Draw(5, scores).IDs
		if !slices.Equal(ids, whole.Draw(5, scores).IDs) {
			t.Errorf("%d trainers draw otherwise than the four before", trainers)
		}
		if slices.Equal(ids, fresh) {
			t.Error("what was learned does not matter, so this test says nothing")
		}
		again := newTestLearner(t, 4, 40)
		if err := again.Begin(scores, learned); err != nil {
			t.Fatal(err)
		}
		_, want := teach(again, 5, 8)
		if _, got := teach(later, 5, 8); !bytes.Equal(got, want) {
			t.Errorf("%d trainers learn otherwise", trainers)
		}
	}
}

// TestLearnerOfSomethingElse checks that a learner refuses what was learned with another memory, or
// is damaged.
func TestLearnerOfSomethingElse(t *testing.T) {
	l := newTestLearner(t, 2, 40)
	scores, learned := teach(l, 0, 3)
	if err := newTestLearner(t, 2, 39).Begin(scores, learned); err == nil ||
		!strings.Contains(err.Error(), "a memory of 40 bytes") {
		t.Errorf("with less memory: %v", err)
	}
	for n := 0; n < len(learned); n += 1 + n/64 {
		if err := l.Begin(scores, learned[:n:n]); err == nil {
			t.Fatalf("the first %d bytes of %d are taken", n, len(learned))
		}
	}
	// the first four are the number of processes, which may be large
	for i := 4; i < len(learned); i += 1 + i/64 {
		hurt := slices.Clone(learned)
		hurt[i] ^= 0xff
		if l.Begin(scores, hurt) == nil {
			l.Draw(3, scores) // another epoch, at worst
		}
	}
}

// TestLearnerDrops checks that the last batch is left out if training wants only full ones.
func TestLearnerDrops(t *testing.T) {
	for drop, want := range map[bool]int{false: 200, true: 198} {
		l, err := NewLearner(ChooserConfig{
			System: &shadeSystem, World: []int32{0}, Ranks: 1, CapacityBytes: 40,
			Size:    func(draw.SampleID) int64 { return 1 },
			Sampler: draw.SamplerConfig{Samples: 200, BatchSize: 9, World: 1, DropLast: drop},
			Initial: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		l.Cut(unknown)
		if n := len(l.Draw(0, protocol.EqualScores(200, 1)).IDs); n != want {
			t.Errorf("drop_last %v: %d draws, want %d", drop, n, want)
		}
	}
}
