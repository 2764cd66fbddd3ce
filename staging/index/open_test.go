package index

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// A session opens data sets with one cache folder, and records what was logged and how many scans
// began.
type session struct {
	opt   OpenOptions
	log   []string
	scans int
}

func newSession(t *testing.T) *session {
	s := &session{}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	s.opt.Log = func(msg string) { s.log = append(s.log, msg) }
	s.opt.Progress = func(files int64) { s.scans++ }
	return s
}

// open returns the manifest, and whether a scan made it.
func (s *session) open(t *testing.T, path string) (m *dataset.Manifest, scanned bool) {
	t.Helper()
	s.scans = 0
	m, err := Open(context.Background(), path, s.opt)
	stagingtest.Must(t, err)
	return m, s.scans > 0
}

func TestOpenCaches(t *testing.T) {
	s := newSession(t)
	root := stagingtest.Tree(t, "a/1", "b/2", "b/c/3", "e/")
	first, scanned := s.open(t, root)
	if !scanned {
		t.Fatal("the first time there was no scan")
	}
	second, scanned := s.open(t, root)
	if scanned || len(s.log) != 0 {
		t.Errorf("the second time there was a scan; log %q", s.log)
	}
	if difference := differ(first, second); difference != "" {
		t.Error(difference)
	}
	s.opt.NoCache = true
	if _, scanned := s.open(t, root); !scanned {
		t.Error("with NoCache there was no scan")
	}
}

func TestOpenNoticesChanges(t *testing.T) {
	later := stagingtest.ModTime.Add(time.Second)
	for _, c := range []struct {
		name   string
		change func(t *testing.T, root string)
		log    string
		want   []string
	}{
		{
			"a new file", func(t *testing.T, root string) { stagingtest.Grow(t, root, "a/0") },
			"/a has changed",
			[]string{"0 a/0", "0 a/1", "1 b/2", "1 b/c/3"},
		},
		{
			"a new class", func(t *testing.T, root string) { stagingtest.Grow(t, root, "aa/0") },
			" has changed",
			[]string{"0 a/1", "1 aa/0", "2 b/2", "2 b/c/3"},
		},
		{
			"a file in an empty folder",
			func(t *testing.T, root string) { stagingtest.Grow(t, root, "e/5") },
			"/e has changed",
			[]string{"0 a/1", "1 b/2", "1 b/c/3", "2 e/5"},
		},
		{
			"a folder less", func(t *testing.T, root string) {
				stagingtest.Must(t, os.RemoveAll(filepath.Join(root, "b/c")))
			},
			"/b",
			[]string{"0 a/1", "1 b/2"},
		},
		{
			"another size", func(t *testing.T, root string) {
				stagingtest.Must(t, os.WriteFile(filepath.Join(root, "a/1"), []byte("longer"), 0o644))
			}, "/a/1 has size 6, not 3",
			[]string{"0 a/1", "1 b/2", "1 b/c/3"},
		},
		{
			"another time", func(t *testing.T, root string) {
				stagingtest.Must(t, os.Chtimes(filepath.Join(root, "b/c/3"), later, later))
			}, "/b/c/3 was modified at",
			[]string{"0 a/1", "1 b/2", "1 b/c/3"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSession(t)
			root := stagingtest.Tree(t, "a/1", "b/2", "b/c/3", "e/")
			s.open(t, root)
			c.change(t, root)
			m, scanned := s.open(t, root)
			if got := samples(m); !scanned || !slices.Equal(got, c.want) {
				t.Errorf("scanned: %t, samples %q, want %q", scanned, got, c.want)
			}
			if len(s.log) != 1 {
				t.Fatalf("log %q", s.log)
			}
			stagingtest.WantError(t, fmt.Errorf("%s", s.log[0]), "scanning "+root+" again", c.log)
			if _, scanned := s.open(t, root); scanned {
				t.Error("the new manifest was not cached")
			}
		})
	}
}

func TestOpenCacheFailures(t *testing.T) {
	root := stagingtest.Tree(t, "a/1")
	s := newSession(t)
	s.open(t, root)
	cached, err := CachedManifest(root, s.opt)
	stagingtest.Must(t, err)
	stagingtest.Must(t, os.WriteFile(cached, []byte("garbage, not a manifest"), 0o644))
	if _, scanned := s.open(t, root); !scanned || len(s.log) != 1 {
		t.Errorf("a damaged cache: scanned %t, log %q", scanned, s.log)
	}
	stagingtest.Must(t, dataset.WriteParquet(cached, scan(t, stagingtest.Tree(t, "other/1"))))
	if m, scanned := s.open(t, root); !scanned || m.Root() != root {
		t.Errorf("a cache of another folder: scanned %t, root %s", scanned, m.Root())
	}
	s = newSession(t)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(root, "a/1")) // a file
	m, scanned := s.open(t, root)
	if !scanned || m.Len() != 1 || len(s.log) == 0 {
		t.Fatalf("no place for a cache: scanned %t, log %q", scanned, s.log)
	}
	stagingtest.WantError(t, fmt.Errorf("%s", s.log[len(s.log)-1]), "is not cached", "not a directory")
	s = newSession(t)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if m, scanned := s.open(t, root); !scanned || m.Len() != 1 || len(s.log) != 1 {
		t.Errorf("no home: scanned %t, log %q", scanned, s.log)
	}
}

func TestOpenManifest(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "a/2", "b/3")
	path := filepath.Join(t.TempDir(), "m.parquet")
	stagingtest.Must(t, dataset.WriteParquet(path, scan(t, root)))
	open := func(opt OpenOptions) (*dataset.Manifest, error) {
		return Open(context.Background(), path, opt)
	}
	m, err := open(OpenOptions{})
	stagingtest.Must(t, err)
	if m.Root() != root || m.Len() != 3 {
		t.Errorf("%d samples of %s", m.Len(), m.Root())
	}
	moved := filepath.Join(filepath.Dir(root), "moved")
	stagingtest.Must(t, os.Rename(root, moved))
	_, err = open(OpenOptions{})
	stagingtest.WantError(
		t,
		err,
		"staging: manifest "+path+" does not describe "+root+": "+root+"/", " is missing",
	)
	path = filepath.Join(moved, ManifestName)
	stagingtest.Must(t, dataset.WriteParquet(path, m))
	m, err = Open(context.Background(), moved, OpenOptions{})
	stagingtest.Must(t, err)
	if m.Path(2) != filepath.Join(moved, "b/3") {
		t.Errorf("sample 2 is %s", m.Path(2))
	}
	stagingtest.Must(t, os.WriteFile(filepath.Join(moved, "a/2"), nil, 0o644))
	_, err = Open(context.Background(), moved, OpenOptions{})
	stagingtest.WantError(t, err, "does not describe "+moved+": "+moved+"/a/2 has size 0, not 3")
	_, err = Open(context.Background(), moved,
		OpenOptions{ScanOptions: ScanOptions{Only: []string{"*.jpg"}}})
	stagingtest.WantError(t, err, path+" says what the samples are: give --only and --format to "+
		"\"rankpool index\"")
	_, err = Open(context.Background(), path+"x", OpenOptions{})
	stagingtest.WantError(t, err, "staging: ", path+"x", "no such file")
}

// TestOpenImpossibleSizes opens manifests in which one size is impossible. The spread of samples
// that is checked has some of them.
func TestOpenImpossibleSizes(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("a/%d", i))
	}
	root := stagingtest.Tree(t, names...)
	right, path, refused := scan(t, root), filepath.Join(t.TempDir(), "m.parquet"), 0
	for wrong := range right.Len() {
		m := rebuilt(t, right, func(i int, s *dataset.Sample) {
			if i == wrong {
				s.Size = math.MaxInt64 - dataset.RecordCRCBytes
			}
		})
		stagingtest.Must(t, dataset.WriteParquet(path, m))
		_, err := Open(context.Background(), path, OpenOptions{})
		if err == nil || !strings.Contains(err.Error(), "does not describe") {
			refused++
			stagingtest.WantError(t, err, "staging: the samples of "+root,
				fmt.Sprintf("up to sample %d, which has", wrong))
		}
	}
	if refused == 0 {
		t.Error("all samples are in the spread")
	}
}

func TestOpenManifestOfParts(t *testing.T) {
	root := stagingtest.Tree(t, "s/shard")
	part := func(offset int64) *dataset.Manifest { // "shard" is bytes 2 to 7 of "s/shard"
		return rebuilt(t, scan(t, root), func(_ int, s *dataset.Sample) {
			s.Format, s.Offset, s.Size = dataset.FormatPart, offset, 5
		})
	}
	path := filepath.Join(t.TempDir(), "m.parquet")
	stagingtest.Must(t, dataset.WriteParquet(path, part(2)))
	_, err := Open(context.Background(), path, OpenOptions{})
	stagingtest.Must(t, err)
	stagingtest.Must(t, dataset.WriteParquet(path, part(3)))
	_, err = Open(context.Background(), path, OpenOptions{})
	stagingtest.WantError(t, err, "/s/shard has size 7, less than 8")
}

// TestCheckSpread checks that checkSpread looks at both ends, and at about 64 samples of many.
func TestCheckSpread(t *testing.T) {
	root := t.TempDir()
	stagingtest.Must(t, os.Mkdir(filepath.Join(root, "c"), 0o755))
	for i := range 640 {
		stagingtest.Must(t, os.WriteFile(filepath.Join(root, "c", fmt.Sprintf("%03d", i)), nil, 0o644))
	}
	m := scan(t, root)
	noticed := 0
	for id := range m.Len() {
		changed := rebuilt(t, m, func(i int, s *dataset.Sample) {
			if i == id {
				s.ModTime++
			}
		})
		if checkSpread(context.Background(), changed) != nil {
			noticed++
		} else if id == 0 || id == m.Len()-1 {
			t.Errorf("a change of sample %d goes unnoticed", id)
		}
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
		got, err := Splits(stagingtest.Tree(t, c.tree...))
		if err != nil || !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%q: got %q, %v, want %q", c.tree, got, err, c.want)
		}
	}
	root := stagingtest.Tree(t, "m.parquet", "x/train/1", "x/link -> "+tooLong, "y/train/1",
		"y/link -> gone")
	if got, err := Splits(filepath.Join(root, "m.parquet")); got != nil || err != nil {
		t.Errorf("a file: %q, %v", got, err)
	}
	_, err := Splits(filepath.Join(root, "gone"))
	stagingtest.WantError(t, err, "staging: ", "/gone")
	_, err = Splits(filepath.Join(root, "x"))
	stagingtest.WantError(t, err, "staging: ", "/x/link")
	if got, err := Splits(filepath.Join(root, "y")); !slices.Equal(got, []string{"train"}) {
		t.Errorf("beside a link that leads nowhere: %q, %v", got, err)
	}
}

// TestFolderWithItsManifest checks that a folder is opened by the manifest in it, wherever the
// folder is, and scanned without one.
func TestFolderWithItsManifest(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "a/2", "b/3")
	m := scan(t, root)
	reversed := built(t, "/elsewhere", m.Classes(), m.Sample(2), m.Sample(1), m.Sample(0))
	stagingtest.Must(t, dataset.WriteParquet(filepath.Join(root, ManifestName), reversed))
	got, err := Open(context.Background(), root, OpenOptions{})
	stagingtest.Must(t, err)
	if got.Root() != root || got.RelPath(0) != "b/3" {
		t.Errorf("the first sample of %s is %s", got.Root(), got.RelPath(0))
	}
	if again := scan(t, root); again.Identity() != m.Identity() {
		t.Errorf("a scan that finds the manifest: %v, want %v", again.Identity(), m.Identity())
	}
}
