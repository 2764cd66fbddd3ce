package staging

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankpool/scheduler"
)

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, root string)
		want   string
		names  []string // added, removed, changed
	}{
		{"nothing", func(*testing.T, string) {}, "0 samples added, 0 removed, 0 changed", nil},
		{
			"added", func(t *testing.T, root string) { grow(t, root, "a/0", "b/\n \xff", "c/1") },
			"3 samples added, 0 removed, 0 changed",
			[]string{"a/0", `"b/\n \xff"`, "c/1"},
		},
		{
			"removed", func(t *testing.T, root string) { must(t, os.RemoveAll(filepath.Join(root, "b"))) },
			"0 samples added, 2 removed, 0 changed",
			[]string{"b/3", "b/c/4"},
		},
		{
			"renamed", func(t *testing.T, root string) {
				must(t, os.Rename(filepath.Join(root, "a/1"), filepath.Join(root, "a/9")))
			},
			"1 sample added, 1 removed, 0 changed",
			[]string{"a/9", "a/1"},
		},
		{
			"size", func(t *testing.T, root string) {
				must(t, os.WriteFile(filepath.Join(root, "b/3"), []byte("longer"), 0o644))
			},
			"0 samples added, 0 removed, 1 changed",
			[]string{"b/3 (6 bytes, were 3)"},
		},
		{
			"time", func(t *testing.T, root string) {
				must(t, os.Chtimes(filepath.Join(root, "a/2"), modTime, modTime.Add(time.Second)))
			},
			"0 samples added, 0 removed, 1 changed",
			[]string{"a/2 (modified at 2024-02-29T12:30:01.123456789Z, was 2024-02-29T12:30:00.123456789Z)"},
		},
		{
			"content only", func(t *testing.T, root string) {
				must(t, os.WriteFile(filepath.Join(root, "b/c/4"), []byte("b!c!4"), 0o644))
				must(t, os.Chtimes(filepath.Join(root, "b/c/4"), modTime, modTime))
			},
			"0 samples added, 0 removed, 1 changed",
			[]string{"b/c/4 (checksum)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, "a/1", "a/2", "b/3", "b/c/4")
			before := checksums(t, scan(t, root))
			c.change(t, root)
			changes := Compare(before, checksums(t, scan(t, root)), 5)
			names := slices.Concat(changes.AddedNames, changes.RemovedNames, changes.ChangedNames)
			if changes.String() != c.want || !slices.Equal(names, c.names) ||
				changes.Any() != (c.names != nil) {
				t.Errorf("%s: %q, want %s: %q", changes, names, c.want, c.names)
			}
			shown := Compare(before, checksums(t, scan(t, root)), 1)
			if shown.String() != c.want || max(len(shown.AddedNames), len(shown.RemovedNames),
				len(shown.ChangedNames)) > 1 {
				t.Errorf("not more than one name of each kind: %+v", shown)
			}
		})
	}
}

// TestCompareOrder checks against sets of paths, of manifests in any order.
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

// anyFiles draws a manifest of a few files of folders, each once, in any order.
func anyFiles(t *rapid.T, label string) *Manifest {
	m := &Manifest{
		root: "/" + label, classes: []string{"c"},
		folders: []folder{{"b", 1}, {"a/x", 1}, {"a-b", 1}, {"a", 1}},
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
