package scheduler

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestClairvoyantVictim checks the victim against all residents, whenever the first one is
// requested: the heap is built then.
func TestClairvoyantVictim(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c, uses := NewClairvoyant(), make([]Use, 20) // by place; ID 0: free
		for step := range 300 {
			p := Place(rng.IntN(len(uses)))
			u := Use{ID: SampleID(step + 1), Next: float64(rng.IntN(8))}
			switch {
			case uses[p].ID == 0:
				c.Admit(p, u)
				uses[p] = u
			case rng.IntN(3) == 0:
				c.Remove(p)
				uses[p] = Use{}
			default:
				uses[p].Next = u.Next
				c.Refresh(p, uses[p])
			}
			if step < int(seed)*5 {
				continue
			}
			want := slices.MaxFunc(uses, func(a, b Use) int {
				return cmp.Or(cmp.Compare(min(a.ID, 1), min(b.ID, 1)), cmp.Compare(a.Next, b.Next),
					cmp.Compare(b.ID, a.ID))
			})
			if got, ok := c.Victim(); ok != (want.ID != 0) || ok && uses[got] != want {
				t.Fatalf("seed %d, step %d: the victim is %v %v, not %v", seed, step, uses[got], ok, want)
			}
		}
		// The residents leave in order.
		last := Use{Next: 9}
		for {
			p, ok := c.Victim()
			if !ok {
				break
			}
			if u := uses[p]; u.Next > last.Next || u.Next == last.Next && u.ID < last.ID {
				t.Fatalf("seed %d: %v leaves after %v", seed, u, last)
			}
			last = uses[p]
			c.Remove(p)
		}
	}
}
