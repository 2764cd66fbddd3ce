package keep

import (
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
)

// TestLayout checks that the ranks' slots have each sample once, at places in their groups that
// neither overlap nor leave gaps.
func TestLayout(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		samples := rapid.IntRange(0, 400).Draw(r, "samples")
		ranks := rapid.IntRange(1, 9).Draw(r, "ranks")
		seed := rapid.Uint32().Draw(r, "seed")
		size := func(id draw.SampleID) int64 {
			return int64((uint32(id)*2654435761 ^ seed) % 300_000 * (seed % 2)) // also 0
		}
		owners := make([]int, samples)
		for rank := range ranks {
			l := newLayout(samples, 1, rank, ranks, size)
			ends := make([]int64, l.groups())
			next := 0
			for id := range draw.SampleID(samples) {
				slot, own := l.slot(id)
				if !own {
					continue
				}
				owners[id]++
				if slot != next {
					r.Fatalf("sample %d has slot %d, not %d", id, slot, next)
				}
				next++
				g := l.group(slot)
				if int64(l.offset[slot]) != ends[g] || l.size(slot) != size(id) {
					r.Fatalf("sample %d is at %d of group %d, which ends at %d", id, l.offset[slot], g, ends[g])
				}
				ends[g] += size(id)
			}
			if next != l.slots() {
				r.Fatalf("rank %d has %d slots for %d samples", rank, l.slots(), next)
			}
			for g, end := range ends {
				if end != l.bytes[g] {
					r.Fatalf("group %d has %d bytes of %d", g, l.bytes[g], end)
				}
			}
		}
		for id, n := range owners {
			if n != 1 {
				r.Fatalf("%d ranks own sample %d", n, id)
			}
		}
	})
}
