package rank

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/staging/index"
)

// TestOwnTargets checks that every sample belongs to one rank, under the number that of uses.
func TestOwnTargets(t *testing.T) {
	dir := t.TempDir()
	for i := range 23 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, i+1),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := index.Scan(t.Context(), dir, index.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ranks := range []int{1, 2, 3, 8, 30} {
		seen := map[draw.SampleID]bool{}
		for rank := range ranks {
			own := &ownTargets{manifest: m, rank: rank, ranks: ranks}
			for k := range own.Len() {
				id := own.id(draw.SampleID(k))
				if draw.Owner(id, ranks) != rank || seen[id] || int(id) >= m.Len() ||
					int(id)/ranks != k {
					t.Fatalf("%d ranks: sample %d is entry %d of rank %d", ranks, id, k, rank)
				}
				if own.Path(draw.SampleID(k)) != m.Path(id) {
					t.Fatalf("%d ranks: entry %d of rank %d is not sample %d", ranks, k, rank, id)
				}
				if own.of(id) >= 0 {
					t.Fatalf("sample %d has target %d before any is known", id, own.of(id))
				}
				seen[id] = true
			}
		}
		if len(seen) != m.Len() {
			t.Fatalf("%d ranks own %d of %d samples", ranks, len(seen), m.Len())
		}
	}
}
