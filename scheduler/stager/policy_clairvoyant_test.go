package stager

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
)

// TestClairvoyantVictim checks the victim against all residents, whenever the first victim is
// requested: the heap is built then.
func TestClairvoyantVictim(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c, uses := NewClairvoyant(), make([]Use, 20) // ID 0: none
		cache := NewCache(c, int64(len(uses)), func(draw.SampleID) int64 { return 1 })
		for step := range 300 {
			i := rng.IntN(len(uses))
			u := Use{ID: draw.SampleID(step + 1), Next: float64(rng.IntN(8))}
			switch {
			case uses[i].ID == 0:
				cache.Draw(u, nobody)
				uses[i] = u
			case rng.IntN(3) == 0:
				cache.Remove(uses[i].ID)
				uses[i] = Use{}
			default:
				uses[i].Next = u.Next
				cache.Refresh(uses[i])
			}
			if step < int(seed)*5 {
				continue
			}
			want := slices.MaxFunc(uses, func(a, b Use) int {
				return cmp.Or(cmp.Compare(min(a.ID, 1), min(b.ID, 1)), cmp.Compare(a.Next, b.Next),
					cmp.Compare(b.ID, a.ID))
			})
			if got, ok := c.Victim(); ok != (want.ID != 0) || ok && cache.residents.use(got) != want {
				t.Fatalf("seed %d, step %d: the victim is at %d %v, not %v", seed, step, got, ok, want)
			}
		}
		// The residents leave in order.
		last := Use{Next: 9}
		for {
			p, ok := c.Victim()
			if !ok {
				break
			}
			u := cache.residents.use(p)
			if u.Next > last.Next || u.Next == last.Next && u.ID < last.ID {
				t.Fatalf("seed %d: %v leaves after %v", seed, u, last)
			}
			last = u
			cache.Remove(u.ID)
		}
	}
}
