package main

import (
	"fmt"
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
	measure := func(a slab.Allocator) slab.Fragmentation {
		const smallest, largest, fill, seed = 1 << 10, 16 << 20, 0.95, 1
		return slab.MeasureFragmentation(a, smallest, largest, fill, churn, rounds, seed)
	}
	large, small := measure(slab.NewArena(4<<30)), measure(slab.NewArena(1<<30))
	other, best := "best fit", measure(newHoles(1<<30, true)).Free
	if first := measure(newHoles(1<<30, false)).Free; first < best {
		other, best = "first fit", first
	}
	return []row{
		share("slab of 4 GiB: free at the first failure", large.Free),
		share("slab of 4 GiB: never filled", large.Unusable),
		ratioRow("slab of 1 GiB: free at the first failure / with "+other, percent(small.Free),
			percent(best), small.Free/best, atMost, 1),
		share("slab of 1 GiB: never filled", small.Unusable),
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
