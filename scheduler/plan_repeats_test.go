package scheduler

import (
	"slices"
	"testing"
)

// TestRepeats has draws of one sample counted over all trainers, and none where no sample is drawn twice.
func TestRepeats(t *testing.T) {
	p := &Plan{Draws: &Draws{IDs: []SampleID{3, 1, 3, 0, 3, 1}}, Consumer: []uint16{0, 0, 1, 1, 0, 1}}
	for trainer, want := range [][]uint32{{0, 0, 2}, {1, 0, 1}} {
		if got := p.Repeats(trainer); !slices.Equal(got, want) {
			t.Errorf("trainer %d: %v, want %v", trainer, got, want)
		}
	}
	p.IDs = []SampleID{3, 1, 2, 0, 5, 4}
	if got := p.Repeats(0); got != nil {
		t.Errorf("no sample is drawn twice, and the repeats are %v", got)
	}
	if got := (&Plan{Draws: &Draws{}}).Repeats(0); got != nil {
		t.Errorf("an empty epoch has the repeats %v", got)
	}
}
