package index

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
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
			"added", func(t *testing.T, root string) {
				stagingtest.Grow(t, root, "a/0", "b/\n \xff", "c/1")
			},
			"3 samples added, 0 removed, 0 changed",
			[]string{"a/0", `"b/\n \xff"`, "c/1"},
		},
		{
			"removed", func(t *testing.T, root string) {
				stagingtest.Must(t, os.RemoveAll(filepath.Join(root, "b")))
			},
			"0 samples added, 2 removed, 0 changed",
			[]string{"b/3", "b/c/4"},
		},
		{
			"renamed", func(t *testing.T, root string) {
				stagingtest.Must(t, os.Rename(filepath.Join(root, "a/1"), filepath.Join(root, "a/9")))
			},
			"1 sample added, 1 removed, 0 changed",
			[]string{"a/9", "a/1"},
		},
		{
			"size", func(t *testing.T, root string) {
				stagingtest.Must(t, os.WriteFile(filepath.Join(root, "b/3"), []byte("longer"), 0o644))
			},
			"0 samples added, 0 removed, 1 changed",
			[]string{"b/3 (6 bytes, were 3)"},
		},
		{
			"time", func(t *testing.T, root string) {
				modTime := stagingtest.ModTime.Add(time.Second)
				stagingtest.Must(t, os.Chtimes(filepath.Join(root, "a/2"), modTime, modTime))
			},
			"0 samples added, 0 removed, 1 changed",
			[]string{"a/2 (modified at 2024-02-29T12:30:01.123456789Z, was 2024-02-29T12:30:00.123456789Z)"},
		},
		{
			"content only", func(t *testing.T, root string) {
				stagingtest.Must(t, os.WriteFile(filepath.Join(root, "b/c/4"), []byte("b!c!4"), 0o644))
				path := filepath.Join(root, "b/c/4")
				stagingtest.Must(t, os.Chtimes(path, stagingtest.ModTime, stagingtest.ModTime))
			},
			"0 samples added, 0 removed, 1 changed",
			[]string{"b/c/4 (checksum)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := stagingtest.Tree(t, "a/1", "a/2", "b/3", "b/c/4")
			before := checksums(t, scan(t, root))
			c.change(t, root)
			changes := dataset.Compare(before, checksums(t, scan(t, root)), 5)
			names := slices.Concat(changes.AddedNames, changes.RemovedNames, changes.ChangedNames)
			if changes.String() != c.want || !slices.Equal(names, c.names) ||
				changes.Any() != (c.names != nil) {
				t.Errorf("%s: %q, want %s: %q", changes, names, c.want, c.names)
			}
			shown := dataset.Compare(before, checksums(t, scan(t, root)), 1)
			if shown.String() != c.want || max(len(shown.AddedNames), len(shown.RemovedNames),
				len(shown.ChangedNames)) > 1 {
				t.Errorf("not more than one name of each kind: %+v", shown)
			}
		})
	}
}
