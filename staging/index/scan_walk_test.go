package index

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler"
	"rankpool/staging/dataset"
)

// oddName draws file names of any bytes that a file system accepts, from few letters, so that names
// share prefixes.
func oddName() *rapid.Generator[string] {
	letter := rapid.SampledFrom([]string{"a", "b", "-", "\n", " ", `"`, "ä", "\xff", "\xc3", "."})
	return rapid.Map(rapid.SliceOfN(letter, 1, 5), func(letters []string) string {
		name := strings.Join(letters, "")
		if strings.Trim(name, ".") == "" {
			return "x" + name
		}
		return name
	})
}

// anyTree makes a random tree of files in folders and returns its root.
func anyTree(t *rapid.T, dir string) string {
	root, err := os.MkdirTemp(dir, "tree")
	must2(t, err)
	folders := []string{root}
	for range rapid.IntRange(1, 8).Draw(t, "folders") {
		in := rapid.SampledFrom(folders).Draw(t, "in")
		path := filepath.Join(in, oddName().Draw(t, "folder"))
		if os.Mkdir(path, 0o755) == nil {
			folders = append(folders, path)
		}
	}
	for i := range rapid.IntRange(0, 20).Draw(t, "files") {
		in := rapid.SampledFrom(folders[min(1, len(folders)-1):]).
			Draw(t, "in")
			// none beside the classes
		path := filepath.Join(in, oddName().Draw(t, "file"))
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		must2(t, os.WriteFile(path, make([]byte, i%3), 0o644))
	}
	return root
}

func must2(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// TestScanLikeWalkDir checks random trees against filepath.WalkDir, alone and with other ranks.
func TestScanLikeWalkDir(t *testing.T) {
	dir := t.TempDir()
	groups := map[int]*Group{1: nil, 2: testGroup(t, 2), 4: testGroup(t, 4)}
	rapid.Check(t, func(t *rapid.T) {
		root := anyTree(t, dir)
		defer os.RemoveAll(root)
		want := walk(t, root)
		var first *dataset.Manifest
		for _, ranks := range []int{1, 2, 4} {
			m, err := Scan(context.Background(), root, ScanOptions{
				Concurrency: rapid.IntRange(1, 5).Draw(t, "concurrency"), Group: groups[ranks],
				Sync: rapid.Bool().Draw(t, "sync"),
			})
			if len(want) == 0 {
				if err == nil || !strings.Contains(err.Error(), "holds no sample") {
					t.Fatalf("no files, but %v", err)
				}
				continue
			}
			must2(t, err)
			var got []string
			for id := range scheduler.SampleID(m.Len()) {
				got = append(got, fmt.Sprintf("%q %d %d", m.RelPath(id), m.Size(id), m.ModTime(id)))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%d ranks found\n%s, want\n%s", ranks, strings.Join(got, "\n"),
					strings.Join(want, "\n"))
			}
			if first == nil {
				first = m
			}
			if difference := differ(first, m); difference != "" {
				t.Fatalf("%d ranks: %s", ranks, difference)
			}
		}
	})
}

// walk lists the visible files of a tree, sorted.
func walk(t *rapid.T, root string) (files []string) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != root && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, fmt.Sprintf("%q %d %d", rel, info.Size(), info.ModTime().UnixNano()))
		return err
	})
	must2(t, err)
	slices.Sort(files)
	return files
}
