package layout

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestInterleave(t *testing.T) {
	for _, test := range []struct {
		order, want string // the letter is the target, in upper case: later in order
		window      int
	}{
		{"", "", 4},
		{"aaabbb", "ababab", 6},
		{"aaabbb", "aaabbb", 1},
		{"aaabbbb", "aaabbbb", 3},
		{"aabbccAABBCC", "abcabcABCABC", 6},
		{"aaaaaaab", "aaaabaaa", 8}, // the one of b in the middle: a is asked all the time
		{"abcabc", "abcabc", 6},
	} {
		targetOf := func(b byte) int { return int(b | 0x20) }
		if got := string(Interleave([]byte(test.order), targetOf, test.window)); got != test.want {
			t.Errorf("%q in windows of %d: %q, want %q", test.order, test.window, got, test.want)
		}
	}
}

func TestInterleaveKeepsWindowsAndOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		targets := rapid.SliceOf(rapid.IntRange(-2, 6)).Draw(t, "targets")
		window := rapid.IntRange(1, 20).Draw(t, "window")
		order := make([]int, len(targets))
		for i := range order {
			order[i] = i
		}
		got := Interleave(order, func(i int) int { return targets[i] }, window)
		last := map[int]int{}
		for at, i := range got {
			if at/window != i/window {
				t.Fatalf("element %d is at %d: outside its window of %d", i, at, window)
			}
			if before, found := last[targets[i]]; found && before > i {
				t.Fatalf("%d comes after %d, both are on %d", i, before, targets[i])
			}
			last[targets[i]] = i
		}
		sorted := slices.Sorted(slices.Values(got))
		if !slices.Equal(sorted, order) {
			t.Fatalf("%v is no rearrangement", got)
		}
		checkEven(t, got, targets, window)
	})
}

// checkEven checks that in every prefix of a window each target has its share within one request.
func checkEven(t *rapid.T, got, targets []int, window int) {
	for part := range slices.Chunk(got, window) {
		all, sofar := map[int]int{}, map[int]int{}
		for _, i := range part {
			all[targets[i]]++
		}
		for n, i := range part {
			sofar[targets[i]]++
			for target, count := range all {
				share := float64(count) * float64(n+1) / float64(len(part))
				if off := float64(sofar[target]) - share; off < -float64(len(all)) || off > float64(len(all)) {
					t.Fatalf("after %d of %d, %d of %d requests went to %d", n+1, len(part), sofar[target], count, target)
				}
			}
		}
	}
}

func TestInterleavePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a window of 0 passes")
		}
	}()
	Interleave([]int{1}, func(int) int { return 0 }, 0)
}

func TestPerTarget(t *testing.T) {
	for _, test := range []struct{ inFlight, targets, want int }{
		{16, 0, 16}, {0, 0, 1}, {16, 1, 8}, {4, 1, 4}, {16, 2, 8}, {16, 4, 8}, {16, 8, 4}, {16, 32, 1}, {16, 30, 2}, {0, 4, 1}, {1, 4, 1},
	} {
		if got := PerTarget(test.inFlight, test.targets); got != test.want {
			t.Errorf("PerTarget(%d, %d) = %d, want %d", test.inFlight, test.targets, got, test.want)
		}
	}
}
