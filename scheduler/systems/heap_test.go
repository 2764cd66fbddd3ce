package systems

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler"
)

// TestHeap compares the heap with a linear search of a list.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rank := make([]int, 12)
		h := newHeap(func(a, b scheduler.Place) bool { return rank[a] < rank[b] })
		var in []scheduler.Place
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := scheduler.Place(rapid.IntRange(0, len(rank)-1).Draw(t, "place"))
			at := slices.Index(in, p)
			if h.Has(p) != (at >= 0) {
				t.Fatalf("place %d is in the heap: %v", p, h.Has(p))
			}
			switch {
			case at < 0:
				rank[p] = rapid.IntRange(0, 4).Draw(t, "rank")
				h.Push(p)
				in = append(in, p)
			case rapid.Bool().Draw(t, "fix"):
				rank[p] = rapid.IntRange(0, 4).Draw(t, "rank")
				h.Fix(p)
			default:
				h.Remove(p)
				in = slices.Delete(in, at, at+1)
			}
			got, ok := h.Min()
			if ok != (len(in) > 0) || h.Len() != len(in) {
				t.Fatalf("%d places in the heap, want %d", h.Len(), len(in))
			}
			if !ok {
				continue
			}
			want := slices.MinFunc(in, func(a, b scheduler.Place) int {
				if rank[a] != rank[b] {
					return rank[a] - rank[b]
				}
				return int(a - b)
			})
			if got != want {
				t.Fatalf("place %d of rank %d is first, want %d of rank %d", got, rank[got], want,
					rank[want])
			}
		}
	})
}
