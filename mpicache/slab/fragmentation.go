package slab

import (
	"math"
	"math/rand/v2"
)

// Fragmentation is what a virtual arena loses after long churn, as shares of the arena, means over
// rounds.
type Fragmentation struct {
	Free float64 // free when an Alloc first fails
	// still free when it was then filled with those of 1,000 more requests that fit
	Unusable float64
}

// Allocator is what MeasureFragmentation measures; Arena is one.
type Allocator interface {
	Alloc(sizeBytes int64) (off int64, ok bool)
	Free(off int64)
	UsedBytes() int64
	FreeBytes() int64
}

// MeasureFragmentation churns an empty allocator and measures what it loses.
//
// Blocks of smallest … largest bytes, log-uniform, are replaced at random `churn` times with the
// arena filled to the share `fill` (0 … 1); then it is filled up until an Alloc fails; and so on
// for `rounds`. It needs no memory but the allocator's records. The same arguments give the same
// result.
//
// What a failed Alloc leaves free depends on how many of the largest blocks there is room for, and
// hardly on the policy.
func MeasureFragmentation(
	a Allocator, smallest, largest int64, fill float64, churn, rounds int, seed uint64,
) Fragmentation {
	rng, arenaBytes := rand.New(rand.NewPCG(seed, 0)), a.FreeBytes()
	var held []int64
	drop := func() {
		k := rng.IntN(len(held))
		a.Free(held[k])
		held[k] = held[len(held)-1]
		held = held[:len(held)-1]
	}
	add := func(sizeBytes int64) bool {
		off, ok := a.Alloc(sizeBytes)
		if ok {
			held = append(held, off)
		}
		return ok
	}
	var sum Fragmentation
	for range rounds {
		for range churn {
			// An evicting cache makes room until the sample fits.
			for want := logUniform(rng, smallest, largest); !add(want); {
				drop()
			}
			for float64(a.UsedBytes()) > fill*float64(arenaBytes) {
				drop()
			}
		}
		for add(logUniform(rng, smallest, largest)) {
		}
		sum.Free += float64(a.FreeBytes()) / float64(arenaBytes)
		for range 1000 {
			add(logUniform(rng, smallest, largest))
		}
		sum.Unusable += float64(a.FreeBytes()) / float64(arenaBytes)
	}
	return Fragmentation{sum.Free / float64(rounds), sum.Unusable / float64(rounds)}
}

// logUniform draws from smallest … largest so that every octave is equally likely.
func logUniform(rng *rand.Rand, smallest, largest int64) int64 {
	return int64(
		float64(smallest) * math.Exp(rng.Float64()*math.Log(float64(largest)/float64(smallest))))
}
