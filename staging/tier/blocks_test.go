package tier

import (
	"testing"

	"pgregory.net/rapid"
)

// TestBlocksAreTakenOnce compares the blocks with a plain list: none is allocated twice, and there
// is room as long as there are blocks.
func TestBlocksAreTakenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 63, 64, 65, 128, 1000, 4096, 10_000}).Draw(t, "blocks")
		b := newBlocks(size)
		used, left := make([]bool, size), size
		var taken [][]extent
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(taken) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "which")
				for _, e := range taken[i] {
					for at := e.start; at < e.start+e.n; at++ {
						used[at] = false
					}
					left += int(e.n)
				}
				b.give(taken[i])
				taken = append(taken[:i], taken[i+1:]...)
				continue
			}
			n := rapid.IntRange(0, size/4+1).Draw(t, "n")
			extents, ok := b.take(n)
			if ok != (n <= left) {
				t.Fatalf("%d of %d free blocks taken: %v", n, left, ok)
			}
			got := 0
			for _, e := range extents {
				for at := e.start; at < e.start+e.n; at++ {
					if int(at) >= size || used[at] {
						t.Fatalf("block %d of %d taken twice", at, size)
					}
					used[at] = true
				}
				got += int(e.n)
			}
			if ok && got != n {
				t.Fatalf("%d blocks instead of %d", got, n)
			}
			left -= got
			taken = append(taken, extents)
		}
		if b.left != left {
			t.Fatalf("%d blocks left, %d were counted", b.left, left)
		}
	})
}

// TestBlocksStayInOnePiece checks that samples that come one after another each take one run.
func TestBlocksStayInOnePiece(t *testing.T) {
	b := newBlocks(1000)
	for i := range 100 {
		if e, ok := b.take(10); !ok || len(e) != 1 {
			t.Fatalf("sample %d: %v, %v", i, e, ok)
		}
	}
	if _, ok := b.take(1); ok {
		t.Error("a block more than there are")
	}
}
