package dataset

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler"
)

// TestCompareOrder compares manifests in any order, and checks the result against sets of paths.
func TestCompareOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyFiles(t, "before"), anyFiles(t, "after")
		changes := Compare(a, b, 1<<30)
		sizes := func(m *Manifest) map[string]int64 {
			found := map[string]int64{}
			for id := range scheduler.SampleID(m.Len()) {
				found[m.RelPath(id)] = m.Size(id)
			}
			return found
		}
		var added, removed, changed int
		before, after := sizes(a), sizes(b)
		for path, size := range before {
			if now, found := after[path]; !found {
				removed++
			} else if now != size {
				changed++
			}
		}
		for path := range after {
			if _, found := before[path]; !found {
				added++
			}
		}
		if want := fmt.Sprint(added, removed, changed); fmt.Sprint(
			changes.Added, changes.Removed, changes.Changed) != want ||
			len(changes.AddedNames) != added || len(changes.RemovedNames) != removed ||
			len(changes.ChangedNames) != changed {
			t.Fatalf("%+v, want %s", changes, want)
		}
	})
}

// anyFiles draws a manifest of a few files in folders, each file once, in any order.
func anyFiles(t *rapid.T, label string) *Manifest {
	m := &Manifest{
		root: "/" + label, classes: []string{"c"},
		folders: []Folder{{"b", 1}, {"a/x", 1}, {"a-b", 1}, {"a", 1}},
	}
	type place struct {
		in   uint32
		name string
	}
	places := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) place {
		return place{
			rapid.Uint32Range(0, 3).Draw(t, "in"),
			rapid.SampledFrom([]string{"1", "2", "\xff", "ä", "a"}).Draw(t, "name"),
		}
	}), 1, 12, rapid.ID).Draw(t, label)
	for _, p := range places {
		m.add(p.in, p.name, 0, rapid.Int64Range(0, 1).Draw(t, "size"), 7)
	}
	return m
}
