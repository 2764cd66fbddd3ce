package systems

import (
	"math"
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

func newTestChooser(t *testing.T, system *System, epochs int) *Chooser {
	t.Helper()
	c, err := NewChooser(ChooserConfig{
		System:  system,
		Sampler: draw.SamplerConfig{Samples: 200, Seed: 3, BatchSize: 4, World: 2},
		World:   []int32{0, 1}, Ranks: 2,
		Epochs: epochs, CapacityBytes: 40, Size: func(draw.SampleID) int64 { return 1 },
		Initial: 1, Values: Values{"max_warm_up_epochs": 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func cutOf(epoch int) []float32 {
	scores, r := make([]float32, 200), newRandom(int64(epoch))
	for i := range scores {
		scores[i] = float32(1 + r.below(1000))
	}
	return scores
}

// TestChooserGoesOn checks that a chooser that gets the cuts of earlier epochs, or is asked for an
// epoch again, makes the same choices as one that followed training from the start.
func TestChooserGoesOn(t *testing.T) {
	for _, system := range []*System{
		&quiverSystem, &nopfsSystem, &icacheSystem, &impactSystem,
	} {
		var cuts []protocol.Cut
		whole, want := newTestChooser(t, system, 6), [][]draw.SampleID(nil)
		for epoch := range 6 {
			want = append(want, whole.Draw(epoch, cutOf(epoch)).IDs)
			cuts = append(cuts, protocol.Cut{Epoch: epoch, Scores: cutOf(epoch)})
		}
		if whole.Weighted() && slices.Equal(want[4],
			newTestChooser(t, system, 6).Draw(4, cutOf(4)).IDs) {
			t.Errorf("%s: what was chosen before does not matter, so this test says nothing",
				system.Name)
		}
		later := newTestChooser(t, system, 6)
		later.Follow(cuts[:4])
		for _, epoch := range []int{4, 5, 4} {
			if later.Weighted() {
				later.Follow(cuts[:epoch])
			}
			if got := later.Draw(epoch, cutOf(epoch)).IDs; !slices.Equal(got, want[epoch]) {
				t.Errorf("%s: epoch %d is chosen otherwise", system.Name, epoch)
			}
		}
	}
}

// TestChooserNeedsEpochs checks that NoPFS needs the number of epochs, to count future reads, and
// refuses one whose counts would not fit into memory.
func TestChooserNeedsEpochs(t *testing.T) {
	for epochs, want := range map[int]string{
		0: "needs the number of epochs", math.MaxInt32 - 1: "2147483646 epochs of 10 samples have more",
		math.MaxInt: "epochs of 10 samples have more", 100: "",
	} {
		_, err := NewChooser(ChooserConfig{
			System: &nopfsSystem, Epochs: epochs,
			Sampler: draw.SamplerConfig{Samples: 10, BatchSize: 1, World: 1},
			World:   []int32{0}, Ranks: 1,
			Size: func(draw.SampleID) int64 { return 1 },
		})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d epochs: %v, want %q", epochs, err, want)
		}
	}
}
