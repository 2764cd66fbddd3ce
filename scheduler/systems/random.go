package systems

import (
	"math/bits"

	"rankpool/scheduler/draw"
)

// random is a random number generator, seeded by the run.
//
// Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014
// (SplitMix64).
type random struct{ state uint64 }

func newRandom(seed int64) random { return random{uint64(seed)} }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number in [0, n), 0 < n. Its bias is below n/2^64.
func (r *random) below(n int) int {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

// shuffle puts ids in random order.
func (r *random) shuffle(ids []draw.SampleID) {
	for ; len(ids) > 1; ids = ids[1:] {
		k := r.below(len(ids))
		ids[0], ids[k] = ids[k], ids[0]
	}
}
