package main

import (
	"testing"

	"rankpool/mpicache/slab"
)

// TestFragmentation holds the allocator to its bars for samples of 1 KiB to 16 MiB. With an arena
// of 64 largest samples no policy stays below 10 % free at the first failure (see
// fragment); with 256 it does.
func TestFragmentation(t *testing.T) {
	for _, fill := range []float64{0.8, 0.9, 0.95, 1} {
		small := fragment(slab.NewArena(1<<30), 1<<10, 16<<20, fill, 5_000, 20, 1)
		large := fragment(slab.NewArena(4<<30), 1<<10, 16<<20, fill, 20_000, 5, 1)
		t.Logf("filled to %3.0f %%: free at the first failure %.1f %% of 1 GiB, %.1f %% of 4 "+
			"GiB; unusable %.1f %%, %.1f %%",
			100*fill, 100*small.free, 100*large.free, 100*small.unusable, 100*large.unusable)
		if small.free > 0.18 || small.unusable > 0.02 || large.free > 0.10 {
			t.Errorf("filled to %.0f %%: the bars are 18 %% and 2 %% of 1 GiB, 10 %% of 4 GiB",
				100*fill)
		}
	}
}
