package slab

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// checkArena walks the arena and checks that its records agree: blocks cover it, no two free ones
// touch, the sums are right.
func checkArena(t rapid.TB, a *Arena) {
	t.Helper()
	var used, free, largest, out int64
	freeBefore := false
	lives := 0
	for b, before := int32(1), none; b != none && a.granules > 0; b = a.blocks[b].after {
		if a.blocks[b].before != before {
			t.Fatalf("block %d: before is %d, want %d", b, a.blocks[b].before, before)
		}
		size := a.size(b)
		if size < 1 {
			t.Fatalf("block %d has %d granules", b, size)
		}
		isFree := a.isFree(b)
		if isFree && a.at(b)+size > a.limit {
			t.Fatalf("block %d is free beyond the limit", b)
		}
		if isFree && freeBefore {
			t.Fatalf("blocks %d and %d are free neighbours", before, b)
		}
		if isFree {
			free += size
			largest = max(largest, size)
		} else if a.blocks[b].prev == gone {
			out += size
		} else {
			used += size
			lives++
		}
		freeBefore, before = isFree, b
	}
	if got := a.UsedBytes(); got != used*granuleBytes {
		t.Fatalf("UsedBytes %d, blocks sum to %d", got, used*granuleBytes)
	}
	if got := a.FreeBytes(); got != free*granuleBytes {
		t.Fatalf("FreeBytes %d, blocks sum to %d", got, free*granuleBytes)
	}
	if got := a.largestFreeBytes(); got != largest*granuleBytes {
		t.Fatalf("LargestFreeBytes %d, largest is %d", got, largest*granuleBytes)
	}
	a.Gone(func(off, sizeBytes int64) {
		if off < a.limit*granuleBytes {
			t.Fatalf("%d bytes at %d are out of use below the limit", sizeBytes, off)
		}
		out -= sizeBytes / granuleBytes
	})
	if out != 0 || a.SizeBytes() > a.granules*granuleBytes {
		t.Fatalf("Gone and the blocks differ by %d granules", out)
	}
	if lives != a.lives {
		t.Fatalf("%d live blocks in the table, %d in the arena", a.lives, lives)
	}
}

// TestArenaAgainstModel compares random calls with a list of intervals: no overlap, inside the
// arena, aligned, one free block when everything is freed.
func TestArenaAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 1<<20).Draw(t, "arena")
		a := NewArena(size)
		type interval struct{ off, end int64 }
		var held []interval
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { checkArena(t, a) },
			"alloc": func(t *rapid.T) {
				n := int64(math.Exp(rapid.Float64Range(0, math.Log(1<<18)).Draw(t, "log size"))) - 1
				off, ok := a.Alloc(n)
				if !ok {
					if a.FreeBytes() > 0 && n <= a.largestFreeBytes()/2 {
						t.Fatalf("Alloc(%d) failed with a free block of %d", n,
							a.largestFreeBytes())
					}
					return
				}
				if off < 0 || off%granuleBytes != 0 || off+n > min(size, a.limit*granuleBytes) {
					t.Fatalf("Alloc(%d) = %d in an arena of %d", n, off, size)
				}
				for _, h := range held {
					if off < h.end && h.off < off+max(n, 1) {
						t.Fatalf("[%d,%d) overlaps [%d,%d)", off, off+n, h.off, h.end)
					}
				}
				held = append(held, interval{off, off + max(n, 1)})
			},
			"free": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				a.Free(held[i].off)
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
			},
			"shrink": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "now") == 0 {
					a.Shrink(rapid.Int64Range(0, size).Draw(t, "to"))
				}
			},
		})
		for _, h := range held {
			a.Free(h.off)
		}
		checkArena(t, a)
		if a.largestFreeBytes() != a.SizeBytes() || a.UsedBytes() != 0 {
			t.Fatalf("all given back: largest %d of %d", a.largestFreeBytes(), a.SizeBytes())
		}
	})
}

// TestArenaOffsetsBeyond32Bits allocates blocks that begin at 2^32 granules and beyond.
func TestArenaOffsetsBeyond32Bits(t *testing.T) {
	const size, blocks = 1 << 34, 1 << 6
	a := NewArena(size * blocks)
	if a.high == nil {
		t.Fatal("the arena's offsets have 32 bits")
	}
	a.Expect(blocks)
	for i := range int64(blocks) {
		if off, ok := a.Alloc(size); !ok || off != i*size {
			t.Fatalf("block %d is at %d %v, not %d", i, off, ok, i*size)
		}
	}
	checkArena(t, a)
	for i := range int64(blocks) {
		a.Free(i * 7 % blocks * size)
		checkArena(t, a)
	}
	if a.FreeBytes() != size*blocks || a.largestFreeBytes() != size*blocks {
		t.Fatalf("%d of %d bytes are free", a.FreeBytes(), int64(size*blocks))
	}
}

// TestArenaExpect checks that as many blocks as were expected are allocated without growth.
func TestArenaExpect(t *testing.T) {
	const blocks = 10_000
	a := NewArena(blocks * granuleBytes)
	a.Alloc(1)
	a.Expect(blocks)
	records, chains := cap(a.blocks), len(a.buckets)
	for range blocks - 1 {
		if _, ok := a.Alloc(1); !ok {
			t.Fatal("Alloc failed in an arena with room")
		}
	}
	checkArena(t, a)
	if cap(a.blocks) != records || len(a.buckets) != chains {
		t.Fatalf("%d records and %d chains were expected, %d and %d are there", records, chains,
			cap(a.blocks), len(a.buckets))
	}
}

func TestArenaIsExact(t *testing.T) {
	a := NewArena(3 * granuleBytes)
	for i, want := range []int64{0, 64, 128} {
		if off, ok := a.Alloc(int64(i) * 32); !ok || off != want {
			t.Fatalf("Alloc %d: %d %v, want %d", i, off, ok, want)
		}
	}
	if _, ok := a.Alloc(1); ok {
		t.Fatal("a full arena gave a block")
	}
	a.Free(64)
	if off, ok := a.Alloc(64); !ok || off != 64 {
		t.Fatalf("the hole was not used: %d %v", off, ok)
	}
}

func TestArenaGrowsItsTable(t *testing.T) {
	const blocks = 10_000
	a := NewArena(blocks * granuleBytes)
	for range blocks {
		if _, ok := a.Alloc(1); !ok {
			t.Fatal("Alloc failed in an arena with room")
		}
	}
	checkArena(t, a)
	for i := range int64(blocks) {
		a.Free(i * 7 % blocks * granuleBytes)
	}
	checkArena(t, a)
}

func TestArenaMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(a *Arena){
		"double free":    func(a *Arena) { off, _ := a.Alloc(1); a.Free(off); a.Free(off) },
		"never given":    func(a *Arena) { a.Free(128) },
		"inside a block": func(a *Arena) { off, _ := a.Alloc(256); a.Free(off + 64) },
		"unaligned":      func(a *Arena) { off, _ := a.Alloc(256); a.Free(off + 1) },
		"negative size":  func(a *Arena) { a.Alloc(-1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(NewArena(1 << 20))
		})
	}
}

// TestArenaReusesEqualSizes fills an arena with equal blocks, whose size is no multiple of the
// width of their class: any freed one must do.
func TestArenaReusesEqualSizes(t *testing.T) {
	const size, blocks = 110<<10 + 64, 1000
	a := NewArena(size * blocks)
	for range blocks {
		a.Alloc(size)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		a.Free(rng.Int64N(blocks) * size)
		if _, ok := a.Alloc(size); !ok {
			t.Fatal("a freed block of the same size was not used")
		}
	}
}

// largestFreeBytes returns the size of the largest free block; it walks the list of one class.
func (a *Arena) largestFreeBytes() int64 {
	if a.first == 0 {
		return 0
	}
	l := bits.Len64(a.first) - 1
	s := bits.Len32(a.second[l]) - 1
	var largest int64
	for b := a.heads[l][s]; b != none; b = a.blocks[b].next {
		largest = max(largest, a.size(b))
	}
	return largest * granuleBytes
}
