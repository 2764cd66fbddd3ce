package rank

import "testing"

func TestCollectAt(t *testing.T) {
	for used, want := range map[uint64]int{
		0: 100, 1 << 20: 100, 2 << 20: 100, 8 << 20: 25, 40 << 20: 5, 1 << 40: 5,
	} {
		if got := collectAt(used); got != want {
			t.Errorf("with %d bytes in use garbage is collected at %d %%, not at %d %%", used, got, want)
		}
	}
}
