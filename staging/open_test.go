package staging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A session opens data sets with one cache folder, and keeps what was logged and how often a scan
// was begun.
type session struct {
	opt   OpenOptions
	log   []string
	scans int
}

func newSession(t *testing.T) *session {
	s := &session{}
	s.opt.CacheDir = t.TempDir()
	s.opt.Log = func(msg string) { s.log = append(s.log, msg) }
	s.opt.Progress = func(files int64) { s.scans++ }
	return s
}

// open returns the manifest, and whether a scan made it.
func (s *session) open(t *testing.T, path string) (m *Manifest, scanned bool) {
	t.Helper()
	s.scans = 0
	m, err := Open(context.Background(), path, s.opt)
	must(t, err)
	return m, s.scans > 0
}

func TestOpenCaches(t *testing.T) {
	s := newSession(t)
	root := tree(t, "a/1", "b/2", "b/c/3", "e/")
	first, scanned := s.open(t, root)
	if !scanned {
		t.Fatal("the first time there was no scan")
	}
	second, scanned := s.open(t, root)
	if scanned || len(s.log) != 0 {
		t.Errorf("the second time there was a scan; log %q", s.log)
	}
	if difference := differ(first, second, false); difference != "" {
		t.Error(difference)
	}
	s.opt.NoCache = true
	if _, scanned := s.open(t, root); !scanned {
		t.Error("with NoCache there was no scan")
	}
}

func TestOpenNoticesChanges(t *testing.T) {
	later := modTime.Add(time.Second)
	for _, c := range []struct {
		name    string
		change  func(t *testing.T, root string)
		log     string
		want    []string
		changes string
	}{
		{
			"a new file", func(t *testing.T, root string) { grow(t, root, "a/0") }, "/a has changed",
			[]string{"0 a/0", "0 a/1", "1 b/2", "1 b/c/3"},
			"1 sample added, 0 removed, 0 changed (added: a/0)",
		},
		{
			"a new class", func(t *testing.T, root string) { grow(t, root, "aa/0") }, " has changed",
			[]string{"0 a/1", "1 aa/0", "2 b/2", "2 b/c/3"},
			"1 sample added, 0 removed, 0 changed (added: aa/0)",
		},
		{
			"a file in an empty folder", func(t *testing.T, root string) { grow(t, root, "e/5") },
			"/e has changed",
			[]string{"0 a/1", "1 b/2", "1 b/c/3", "2 e/5"},
			"(added: e/5)",
		},
		{
			"a folder less", func(t *testing.T, root string) {
				must(t, os.RemoveAll(filepath.Join(root, "b/c")))
			},
			"/b",
			[]string{"0 a/1", "1 b/2"},
			"0 samples added, 1 removed, 0 changed (removed: b/c/3)",
		},
		{
			"another size", func(t *testing.T, root string) {
				must(t, os.WriteFile(filepath.Join(root, "a/1"), []byte("longer"), 0o644))
			}, "/a/1 has size 6, not 3",
			[]string{"0 a/1", "1 b/2", "1 b/c/3"},
			"1 changed (changed: a/1 (6 bytes, were 3))",
		},
		{
			"another time", func(t *testing.T, root string) {
				must(t, os.Chtimes(filepath.Join(root, "b/c/3"), later, later))
			}, "/b/c/3 was modified at",
			[]string{"0 a/1", "1 b/2", "1 b/c/3"},
			"1 changed (changed: b/c/3 (modified at ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSession(t)
			root := tree(t, "a/1", "b/2", "b/c/3", "e/")
			s.open(t, root)
			c.change(t, root)
			m, scanned := s.open(t, root)
			if got := samples(m); !scanned || !slices.Equal(got, c.want) {
				t.Errorf("scanned: %t, samples %q, want %q", scanned, got, c.want)
			}
			if len(s.log) != 2 {
				t.Fatalf("log %q", s.log)
			}
			wantError(t, fmt.Errorf("%s", s.log[0]), "scanning "+root+" again", c.log)
			wantError(t, fmt.Errorf("%s", s.log[1]), root+" has changed since it was last scanned: ",
				c.changes)
			if _, scanned := s.open(t, root); scanned {
				t.Error("the new manifest was not cached")
			}
		})
	}
}

func TestOpenCacheFailures(t *testing.T) {
	root := tree(t, "a/1")
	s := newSession(t)
	s.open(t, root)
	cached, err := cacheFile(root, s.opt)
	must(t, err)
	must(t, os.WriteFile(cached, []byte("garbage, not a manifest"), 0o644))
	if _, scanned := s.open(t, root); !scanned || len(s.log) != 1 {
		t.Errorf("a damaged cache: scanned %t, log %q", scanned, s.log)
	}
	must(t, WriteParquet(cached, scan(t, tree(t, "other/1"))))
	if m, scanned := s.open(t, root); !scanned || m.Root() != root {
		t.Errorf("a cache of another folder: scanned %t, root %s", scanned, m.Root())
	}
	s = newSession(t)
	s.opt.CacheDir = filepath.Join(root, "a/1") // a file
	m, scanned := s.open(t, root)
	if !scanned || m.Len() != 1 || len(s.log) == 0 {
		t.Fatalf("no place for a cache: scanned %t, log %q", scanned, s.log)
	}
	wantError(t, fmt.Errorf("%s", s.log[len(s.log)-1]), "is not cached", "not a directory")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	s = newSession(t)
	s.opt.CacheDir = ""
	if m, scanned := s.open(t, root); !scanned || m.Len() != 1 || len(s.log) != 1 {
		t.Errorf("no home: scanned %t, log %q", scanned, s.log)
	}
}

func TestOpenManifest(t *testing.T) {
	root := tree(t, "a/1", "a/2", "b/3")
	path := filepath.Join(t.TempDir(), "m.parquet")
	must(t, WriteParquet(path, scan(t, root)))
	open := func(opt OpenOptions) (*Manifest, error) { return Open(context.Background(), path, opt) }
	m, err := open(OpenOptions{})
	must(t, err)
	if m.Root() != root || m.Len() != 3 {
		t.Errorf("%d samples of %s", m.Len(), m.Root())
	}
	moved := filepath.Join(filepath.Dir(root), "moved")
	must(t, os.Rename(root, moved))
	_, err = open(OpenOptions{})
	wantError(t, err, "staging: manifest "+path+" does not describe "+root+": "+root+"/a/1 is missing")
	m, err = open(OpenOptions{Root: moved})
	must(t, err)
	if m.Path(2) != filepath.Join(moved, "b/3") {
		t.Errorf("sample 2 is %s", m.Path(2))
	}
	must(t, os.WriteFile(filepath.Join(moved, "a/2"), nil, 0o644))
	_, err = open(OpenOptions{Root: moved})
	wantError(t, err, "does not describe "+moved+": "+moved+"/a/2 has size 0, not 3")
	_, err = Open(context.Background(), moved, OpenOptions{Root: root})
	wantError(t, err, moved+" is a folder; another root is for manifest files")
	_, err = Open(context.Background(), path+"x", OpenOptions{})
	wantError(t, err, "staging: ", path+"x", "no such file")
}

func TestOpenManifestOfParts(t *testing.T) {
	root := tree(t, "s/shard")
	m := scan(t, root)
	m.setParts(2)
	m.sizes[0] = 5 // "shard": bytes 2 to 7 of "s/shard"
	path := filepath.Join(t.TempDir(), "m.parquet")
	must(t, WriteParquet(path, m))
	_, err := Open(context.Background(), path, OpenOptions{})
	must(t, err)
	m.offsets[0] = 3
	must(t, WriteParquet(path, m))
	_, err = Open(context.Background(), path, OpenOptions{})
	wantError(t, err, "/s/shard has size 7, less than 8")
}

// TestCheckSpread checks that the check looks at both ends, and at about 64 samples of many.
func TestCheckSpread(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "c"), 0o755))
	for i := range 640 {
		must(t, os.WriteFile(filepath.Join(root, "c", fmt.Sprintf("%03d", i)), nil, 0o644))
	}
	m := scan(t, root)
	noticed := 0
	for id := range m.Len() {
		m.modTimes[id]++
		if m.checkSpread(context.Background(), 1) != nil {
			noticed++
		} else if id == 0 || id == m.Len()-1 {
			t.Errorf("a change of sample %d goes unnoticed", id)
		}
		m.modTimes[id]--
	}
	if noticed != spotChecks {
		t.Errorf("changes of %d samples are noticed, want %d", noticed, spotChecks)
	}
}

func TestSplits(t *testing.T) {
	for _, c := range []struct {
		tree, want []string
	}{
		{[]string{"train/a/1", "val/a/1", "test/a/1"}, []string{"train", "test", "val"}},
		{
			[]string{"train/a/1", "validation/a/1", "valid/a/1", ".git/x", "README"},
			[]string{"train", "valid", "validation"},
		},
		{[]string{"train/a/1"}, []string{"train"}},
		{[]string{"train -> x/data", "x/data/1"}, nil},
		{[]string{".x/data/1", "train -> .x/data"}, []string{"train"}},
		{[]string{"train/a/1", "cats/1"}, nil},
		{[]string{"val/a/1", "test/a/1"}, nil},
		{[]string{"train"}, nil},
		{[]string{"cat/1", "dog/1"}, nil},
		{nil, nil},
	} {
		got, err := Splits(tree(t, c.tree...))
		if err != nil || !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%q: got %q, %v, want %q", c.tree, got, err, c.want)
		}
	}
	root := tree(t, "m.parquet", "x/train/1", "x/link -> gone")
	if got, err := Splits(filepath.Join(root, "m.parquet")); got != nil || err != nil {
		t.Errorf("a file: %q, %v", got, err)
	}
	_, err := Splits(filepath.Join(root, "gone"))
	wantError(t, err, "staging: ", "/gone")
	_, err = Splits(filepath.Join(root, "x"))
	wantError(t, err, "staging: ", "/x/link")
}
