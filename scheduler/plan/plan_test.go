package plan

import (
	"slices"
	"testing"

	"rankpool/scheduler/draw"
)

// TestRepeats checks that draws of one sample are counted over all trainers, and that there are no
// repeats if no sample is drawn twice.
func TestRepeats(t *testing.T) {
	p := &Plan{
		Draws:    &draw.Draws{IDs: []draw.SampleID{3, 1, 3, 0, 3, 1}},
		Consumer: []uint16{0, 0, 1, 1, 0, 1},
	}
	for trainer, want := range [][]uint32{{0, 0, 2}, {1, 0, 1}} {
		if got := slices.Collect(p.Repeats(trainer)); !slices.Equal(got, want) {
			t.Errorf("trainer %d: %v, want %v", trainer, got, want)
		}
	}
	if got := slices.Collect((&Plan{Draws: &draw.Draws{}}).Repeats(0)); got != nil {
		t.Errorf("an empty epoch has the repeats %v", got)
	}
}

// TestManyRepeats draws one sample more often than a byte can count.
func TestManyRepeats(t *testing.T) {
	const draws = 1000
	p := &Plan{Draws: &draw.Draws{IDs: make([]draw.SampleID, draws)}, Consumer: make([]uint16, draws)}
	want := uint32(0)
	for got := range p.Repeats(0) {
		if got != want {
			t.Fatalf("draw %d has %d repeats", want, got)
		}
		want++
	}
	if want != draws {
		t.Errorf("%d draws of %d", want, draws)
	}
}
