package stager

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
)

// TestTable: a dense and a sparse table have the same contents as a map.
func TestTable(t *testing.T) {
	const samples = 300
	if newTable[uint16](samples, samples/denseShare-1).dense != nil ||
		newTable[uint16](samples, samples/denseShare).dense == nil {
		t.Fatal("a table is not as it needs less memory")
	}
	rapid.Check(t, func(t *rapid.T) {
		dense, sparse := newTable[uint16](samples, samples), newTable[uint16](samples, 0)
		want := map[draw.SampleID]uint16{}
		for range rapid.IntRange(0, 1000).Draw(t, "changes") {
			id := draw.SampleID(rapid.IntRange(0, samples-1).Draw(t, "id"))
			v := uint16(rapid.IntRange(0, 2).Draw(t, "value"))
			dense.set(id, v)
			sparse.set(id, v)
			if want[id] = v; v == 0 {
				delete(want, id)
			}
		}
		if sparse.used != len(want) || sparse.used > len(sparse.slots)/4*3 {
			t.Fatalf("%d of %d slots are used, for %d values", sparse.used, len(sparse.slots), len(want))
		}
		got := map[draw.SampleID]uint16{}
		for id := range draw.SampleID(samples) {
			if v := sparse.get(id); v != dense.get(id) {
				t.Fatalf("sample %d: %d in the sparse table, %d in the dense one", id, v, dense.get(id))
			} else if v != 0 {
				got[id] = v
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
