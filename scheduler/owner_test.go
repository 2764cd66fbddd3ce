package scheduler

import (
	"testing"

	"pgregory.net/rapid"
)

// TestOwnerGolden pins the function, which must never change.
func TestOwnerGolden(t *testing.T) {
	for _, tt := range []struct {
		ranks int
		want  [12]int
	}{
		{1, [12]int{}},
		{2, [12]int{1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0}},
		{5, [12]int{2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 4, 0}},
	} {
		var got [12]int
		for id := range SampleID(12) {
			got[id] = Owner(id, tt.ranks)
		}
		if got != tt.want {
			t.Errorf("%d ranks: owners %v, want %v", tt.ranks, got, tt.want)
		}
	}
	if got := Owner(1<<32-1, 1000); got != 482 {
		t.Errorf("the last id has the owner %d", got)
	}
}

func TestOwnerBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 40).Draw(t, "ranks")
		samples := rapid.IntRange(0, 2000).Draw(t, "samples")
		count := make([]int, ranks)
		for id := range SampleID(samples) {
			count[Owner(id, ranks)]++
		}
		for r, n := range count {
			if n < samples/ranks || n > (samples+ranks-1)/ranks {
				t.Fatalf("rank %d of %d owns %d of %d samples", r, ranks, n, samples)
			}
		}
	})
}

// TestOwnerMixed: samples at any regular stride are spread, too.
func TestOwnerMixed(t *testing.T) {
	const ranks, draws = 8, 8000
	for _, stride := range []int{1, 2, 3, 8, 16, 64, 1000} {
		var count [ranks]int
		for i := range draws {
			count[Owner(SampleID(i*stride), ranks)]++
		}
		for r, n := range count {
			if n < 850 || n > 1150 { // 1000 ± 5 standard deviations
				t.Errorf("of every %d. sample rank %d owns %d of %d", stride, r, n, draws)
			}
		}
	}
}
