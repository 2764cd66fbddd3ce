package rank

import "testing"

func TestCollectAt(t *testing.T) {
	for used, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 2 << 20: 400, 4 << 20: 300, 8 << 20: 100, 16 << 20: 12, 40 << 20: 5,
		1 << 40: 5,
	} {
		if got := collectAt(used); got != want {
			t.Errorf("with %d bytes in use garbage is collected at %d %%, not at %d %%", used, got, want)
		}
	}
}
