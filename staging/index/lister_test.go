package index

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// A fakeLister lists through the system's lister, and lets a test do something before and after.
type fakeLister struct {
	lister
	// listed counts the real listings of path, from 1
	before, after func(path string, listed int) error

	mu     sync.Mutex
	listed map[string]int
}

func newFakeLister() *fakeLister {
	return &fakeLister{lister: newSystemLister(2, false), listed: map[string]int{}}
}

func (f *fakeLister) list(ctx context.Context, path string, known *int64) (*listing, error) {
	f.mu.Lock()
	n := f.listed[path] + 1
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(path, n); err != nil {
			return nil, err
		}
	}
	l, err := f.lister.list(ctx, path, known)
	if l != nil {
		f.mu.Lock()
		f.listed[path] = n
		f.mu.Unlock()
		if f.after != nil {
			if err := f.after(path, n); err != nil {
				return nil, err
			}
		}
	}
	return l, err
}

func (f *fakeLister) scan(root string, opt ScanOptions) (*dataset.Manifest, error) {
	opt.lister, opt.Concurrency = f, 3
	return Scan(context.Background(), root, opt)
}

// TestScanChanges changes folders at the worst moments: the manifest has what is there at the end.
func TestScanChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		folder string // the change happens when this folder is first listed
		after  bool   // right after that, else right before
		change func(t *testing.T, root string)
		want   []string
		listed map[string]int
	}{
		{
			"a file comes after its folder was listed", "b", true,
			func(t *testing.T, root string) { stagingtest.Grow(t, root, "b/3") },
			[]string{"0 a/1", "1 b/2", "1 b/3", "1 b/c/4"},
			map[string]int{"": 1, "a": 1, "b": 2, "b/c": 1},
		},
		{
			"a file goes", "b", true,
			func(t *testing.T, root string) { stagingtest.Must(t, os.Remove(filepath.Join(root, "b/2"))) },
			[]string{"0 a/1", "1 b/c/4"},
			map[string]int{"b": 2},
		},
		{
			"a folder goes before it is listed", "b/c", false,
			func(t *testing.T, root string) {
				stagingtest.Must(t, os.RemoveAll(filepath.Join(root, "b/c")))
			},
			[]string{"0 a/1", "1 b/2"},
			map[string]int{"b": 2, "b/c": 0},
		},
		{
			"a folder becomes a file before it is listed", "b/c", false,
			func(t *testing.T, root string) {
				stagingtest.Must(t, os.RemoveAll(filepath.Join(root, "b/c")))
				stagingtest.Grow(t, root, "b/c")
			},
			[]string{"0 a/1", "1 b/2", "1 b/c"},
			map[string]int{"b": 2, "b/c": 0},
		},
		{
			"a folder is renamed before it is listed", "b/c", false,
			func(t *testing.T, root string) {
				stagingtest.Must(t, os.Rename(filepath.Join(root, "b/c"), filepath.Join(root, "b/d")))
			},
			[]string{"0 a/1", "1 b/2", "1 b/d/4"},
			map[string]int{"b": 2, "b/c": 0, "b/d": 1},
		},
		{
			"a class comes", "a", true,
			func(t *testing.T, root string) { stagingtest.Grow(t, root, "aa/5") },
			[]string{"0 a/1", "1 aa/5", "2 b/2", "2 b/c/4"},
			map[string]int{"": 2, "a": 1, "aa": 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := stagingtest.Tree(t, "a/1", "b/2", "b/c/4")
			f := newFakeLister()
			var once sync.Once
			moment := func(path string, listed int) error {
				if path == filepath.Join(root, c.folder) && listed == 1 {
					once.Do(func() { c.change(t, root) })
				}
				return nil
			}
			if c.after {
				f.after = moment
			} else {
				f.before = moment
			}
			m, err := f.scan(root, ScanOptions{})
			stagingtest.Must(t, err)
			if got := samples(m); !slices.Equal(got, c.want) {
				t.Errorf("samples %q, want %q", got, c.want)
			}
			for folder, want := range c.listed {
				if got := f.listed[filepath.Join(root, folder)]; got != want {
					t.Errorf("folder %q was listed %d times, want %d", folder, got, want)
				}
			}
			if difference := differ(m, scan(t, root)); difference != "" {
				t.Error(difference)
			}
		})
	}
}

// TestScanNeverStill changes a folder each time it is listed.
func TestScanNeverStill(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "b/2")
	f := newFakeLister()
	f.after = func(path string, listed int) error {
		if filepath.Base(path) == "b" {
			stagingtest.Grow(t, root, "b/new"+string(rune('0'+listed)))
		}
		return nil
	}
	m, err := f.scan(root, ScanOptions{})
	stagingtest.WantError(t, err, "staging: scan of "+root, root+"/b keeps changing")
	if m != nil || f.listed[filepath.Join(root, "b")] != scanPasses ||
		f.listed[filepath.Join(root, "a")] != 1 {
		t.Errorf("manifest %v, listed %v", m, f.listed)
	}

	f = newFakeLister() // a file that is always gone when it is looked at
	f.before = func(path string, _ int) error {
		if filepath.Base(path) == "b" {
			return &vanishedError{&fs.PathError{Op: "stat", Path: path + "/2", Err: unix.ENOENT}}
		}
		return nil
	}
	m, err = f.scan(root, ScanOptions{})
	stagingtest.WantError(t, err, root+"/b/2: no such file")
	if m != nil {
		t.Error("there is a partial manifest")
	}
}

// TestScanUnreadableFolder makes one folder fail, the root or one deep in the tree.
func TestScanUnreadableFolder(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "b/c/d/2", "e/3")
	for _, folder := range []string{"", "a", "b/c/d"} {
		f := newFakeLister()
		f.before = func(path string, _ int) error {
			if path == filepath.Join(root, folder) {
				return &fs.PathError{Op: "open", Path: path, Err: unix.EACCES}
			}
			return nil
		}
		m, err := f.scan(root, ScanOptions{})
		stagingtest.WantError(t, err, "staging: scan of "+root,
			"open "+filepath.Join(root, folder)+": permission denied")
		if m != nil {
			t.Error("there is a partial manifest")
		}
	}
}

// TestSystemLister lists one folder with every kind of entry, also on a file system that does not
// report kinds.
func TestSystemLister(t *testing.T) {
	root := stagingtest.Tree(
		t,
		"x/file",
		"x/empty",
		"x/folder/",
		"x/link -> file",
		"x/to -> folder",
		"x/.hidden",
		"x/.d/1",
		"x/out -> ../y",
		"y/1",
	)
	stagingtest.Must(t, os.Truncate(filepath.Join(root, "x/empty"), 0))
	stagingtest.Must(
		t,
		os.Chtimes(filepath.Join(root, "x/empty"), stagingtest.ModTime, stagingtest.ModTime),
	)
	stagingtest.Must(t, unix.Mkfifo(filepath.Join(root, "x/pipe"), 0o600))
	dir := filepath.Join(root, "x")
	nanos := stagingtest.ModTime.UnixNano()
	want := &listing{
		Files:   []scannedFile{{"empty", 0, nanos}, {"file", 6, nanos}, {"link", 6, nanos}},
		Folders: []subFolder{{"folder", false}, {"out", true}, {"to", true}},
	}
	check := func(got *listing) {
		t.Helper()
		if !slices.Equal(got.Files, want.Files) || !slices.Equal(got.Folders, want.Folders) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for _, sync := range []bool{false, true} {
		l := newSystemLister(1, sync)
		got, err := l.list(context.Background(), dir, nil)
		stagingtest.Must(t, err)
		check(got)
		again, err := l.list(context.Background(), dir, &got.ModTime)
		if again != nil || err != nil {
			t.Errorf("a folder that is as known: %+v, %v", again, err)
		}
		older := got.ModTime - 1
		if again, err := l.list(context.Background(), dir, &older); again == nil || err != nil {
			t.Errorf("a folder that is not as known: %+v, %v", again, err)
		}
	}
	in, err := os.Open(dir)
	stagingtest.Must(t, err)
	defer in.Close()
	var unknown []unseen
	for _, name := range []string{"file", "empty", "folder", "link", "to", "out", "pipe"} {
		unknown = append(unknown, unseen{name + "\x00", unix.DT_UNKNOWN})
	}
	got := &listing{}
	stagingtest.Must(t, newSystemLister(1, false).look(context.Background(), in, unknown, got))
	got.sort()
	check(got)
}

// TestVanished distinguishes files that have vanished from errors.
func TestVanished(t *testing.T) {
	root := stagingtest.Tree(t, "x/broken -> "+tooLong, "x/1")
	in, err := os.Open(filepath.Join(root, "x"))
	stagingtest.Must(t, err)
	defer in.Close()
	for _, c := range []struct {
		name     string
		kind     uint8
		vanished bool
		want     string
	}{
		{"broken", unix.DT_LNK, false, "file name too long"},
		{"broken", unix.DT_UNKNOWN, false, "file name too long"},
		{"none", unix.DT_LNK, true, "no such file"},
		{"none", unix.DT_REG, true, "no such file"},
		{"none", unix.DT_UNKNOWN, true, "no such file"},
	} {
		err := newSystemLister(1, false).look(context.Background(), in,
			[]unseen{{c.name + "\x00", c.kind}}, &listing{})
		stagingtest.WantError(t, err, root+"/x/"+c.name+": "+c.want)
		//nolint:errorlint // it must be the outermost error
		if _, vanished := err.(*vanishedError); vanished != c.vanished {
			t.Errorf("%s of kind %d: vanished is %t", c.name, c.kind, vanished)
		}
	}
}

func FuzzCutDirent(f *testing.F) {
	f.Add([]byte(
		"\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x08name\x00"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\xff\xff\x08n\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for rest := data; len(rest) > 0; {
			entry, after, err := cutDirent(rest)
			if err != nil {
				return
			}
			if len(after) >= len(rest) || entry.text() == "" || entry.name[len(entry.name)-1] != 0 {
				t.Fatalf("entry %q leaves %d of %d bytes", entry.name, len(after), len(rest))
			}
			rest = after
		}
	})
}
