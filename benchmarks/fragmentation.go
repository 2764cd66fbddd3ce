package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"rankpool/mpicache/slab"
)

var fragmentationSection = section{
	name: "fragmentation",
	about: "samples of 1 KiB to 16 MiB, log-uniform, replaced at random for long in a slab that is " +
		"kept 95 % full; then it is filled: the share that is free " +
		"when a sample first finds no place, and what stays free when 1,000 more have been tried. With " +
		"room for 64 of the largest samples (1 GiB) more is lost; there the bar is the better one of " +
		"best fit and of first fit in order of addresses, which look at every free block.",
	measure: ratios((*bench).fragmentation),
}

func (b *bench) fragmentation() ([]row, error) {
	churn, rounds := 20_000, 10
	if b.quick {
		churn, rounds = 1_000, 1
	}
	measure := func(a allocator) loss {
		const smallest, largest, fill, seed = 1 << 10, 16 << 20, 0.95, 1
		return fragment(a, smallest, largest, fill, churn, rounds, seed)
	}
	large, small := measure(slab.NewArena(4<<30)), measure(slab.NewArena(1<<30))
	other, best := "best fit", measure(newHoles(1<<30, true)).free
	if first := measure(newHoles(1<<30, false)).free; first < best {
		other, best = "first fit", first
	}
	return []row{
		share("slab of 4 GiB: free at the first failure", large.free),
		share("slab of 4 GiB: never filled", large.unusable),
		ratioRow("slab of 1 GiB: free at the first failure / with "+other, percent(small.free),
			percent(best), small.free/best, atMost, 1),
		share("slab of 1 GiB: never filled", small.unusable),
	}, nil
}

func share(what string, value float64) row {
	return plainRow(what, fmt.Sprintf("%.1f %%", 100*value), "", value, 0.10, "10 %")
}

// holes is an allocator that scans the free blocks in order of addresses: it takes the first that
// is large enough, or with best the smallest that is.
type holes struct {
	best  bool
	free  []hole
	lives map[int64]int64 // bytes by offset
	used  int64
	bytes int64
}

// hole is a free block.
type hole struct{ off, bytes int64 }

func newHoles(sizeBytes int64, best bool) *holes {
	return &holes{
		best: best, free: []hole{{0, sizeBytes}}, lives: map[int64]int64{}, bytes: sizeBytes,
	}
}

func (h *holes) UsedBytes() int64 { return h.used }
func (h *holes) FreeBytes() int64 { return h.bytes - h.used }

func (h *holes) Alloc(sizeBytes int64) (off int64, ok bool) {
	want, found := slab.Footprint(sizeBytes), -1
	for i, f := range h.free {
		if f.bytes >= want && (found < 0 || h.best && f.bytes < h.free[found].bytes) {
			found = i
		}
		if found >= 0 && !h.best {
			break
		}
	}
	if found < 0 {
		return 0, false
	}
	f := &h.free[found]
	off = f.off
	if f.off, f.bytes = f.off+want, f.bytes-want; f.bytes == 0 {
		h.free = slices.Delete(h.free, found, found+1)
	}
	h.lives[off] = want
	h.used += want
	return off, true
}

func (h *holes) Free(off int64) {
	size := h.lives[off]
	delete(h.lives, off)
	h.used -= size
	at, _ := slices.BinarySearchFunc(h.free, off, func(f hole, off int64) int {
		return int(f.off - off)
	})
	h.free = slices.Insert(h.free, at, hole{off, size})
	if at+1 < len(h.free) && off+size == h.free[at+1].off {
		h.free[at].bytes += h.free[at+1].bytes
		h.free = slices.Delete(h.free, at+1, at+2)
	}
	if at > 0 && h.free[at-1].off+h.free[at-1].bytes == off {
		h.free[at-1].bytes += h.free[at].bytes
		h.free = slices.Delete(h.free, at, at+1)
	}
}

// loss is what a virtual arena loses after long churn, as shares of the arena, means over
// rounds.
type loss struct {
	free float64 // free when an Alloc first fails
	// still free when it was then filled with those of 1,000 more requests that fit
	unusable float64
}

// allocator is what fragment measures; slab.Arena is one.
type allocator interface {
	Alloc(sizeBytes int64) (off int64, ok bool)
	Free(off int64)
	UsedBytes() int64
	FreeBytes() int64
}

// fragment churns an empty allocator and measures what it loses.
//
// Blocks of smallest … largest bytes, log-uniform, are replaced at random `churn` times with the
// arena filled to the share `fill` (0 … 1); then it is filled up until an Alloc fails; and so on
// for `rounds`. It needs no memory but the allocator's records. The same arguments give the same
// result.
//
// What a failed Alloc leaves free depends on how many of the largest blocks there is room for, and
// hardly on the policy.
func fragment(
	a allocator, smallest, largest int64, fill float64, churn, rounds int, seed uint64,
) loss {
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
	var sum loss
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
		sum.free += float64(a.FreeBytes()) / float64(arenaBytes)
		for range 1000 {
			add(logUniform(rng, smallest, largest))
		}
		sum.unusable += float64(a.FreeBytes()) / float64(arenaBytes)
	}
	return loss{sum.free / float64(rounds), sum.unusable / float64(rounds)}
}

// logUniform draws from smallest … largest so that every octave is equally likely.
func logUniform(rng *rand.Rand, smallest, largest int64) int64 {
	return int64(
		float64(smallest) * math.Exp(rng.Float64()*math.Log(float64(largest)/float64(smallest))))
}
