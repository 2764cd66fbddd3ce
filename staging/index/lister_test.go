package index

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// A fakeLister lists through the system's lister, and lets a test do something before and after.
type fakeLister struct {
	lister
	before, after func(path string) error
}

func newFakeLister() *fakeLister {
	return &fakeLister{lister: &systemLister{make(chan struct{}, 2)}}
}

func (f *fakeLister) list(ctx context.Context, path string) (*listing, error) {
	if f.before != nil {
		if err := f.before(path); err != nil {
			return nil, err
		}
	}
	l, err := f.lister.list(ctx, path)
	if err == nil && f.after != nil {
		err = f.after(path)
	}
	return l, err
}

func (f *fakeLister) scan(root string, opt ScanOptions) (*dataset.Manifest, error) {
	opt.lister = f
	return Scan(context.Background(), root, opt)
}

// TestScanChanges changes folders at the worst moments: the scan ends with an error.
func TestScanChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		folder string // the change happens when this folder is listed
		after  bool   // right after that, else right before
		change func(t *testing.T, root string)
		want   string
	}{
		{
			"a file comes after its folder was listed", "b", true,
			func(t *testing.T, root string) { stagingtest.Grow(t, root, "b/3") },
			"folder %s/b has changed",
		},
		{
			"a file goes", "b", true,
			func(t *testing.T, root string) { stagingtest.Must(t, os.Remove(filepath.Join(root, "b/2"))) },
			"folder %s/b has changed",
		},
		{
			"a class comes", "a", true,
			func(t *testing.T, root string) { stagingtest.Grow(t, root, "aa/5") },
			"folder %s has changed",
		},
		{
			"a folder goes before it is listed", "b/c", false,
			func(t *testing.T, root string) {
				stagingtest.Must(t, os.RemoveAll(filepath.Join(root, "b/c")))
			},
			"open %s/b/c: no such file",
		},
		{
			"a folder becomes a file before it is listed", "b/c", false,
			func(t *testing.T, root string) {
				stagingtest.Must(t, os.RemoveAll(filepath.Join(root, "b/c")))
				stagingtest.Grow(t, root, "b/c")
			},
			"open %s/b/c: not a directory",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := stagingtest.Tree(t, "a/1", "b/2", "b/c/4")
			f := newFakeLister()
			moment := func(path string) error {
				if path == filepath.Join(root, c.folder) {
					c.change(t, root)
				}
				return nil
			}
			if c.after {
				f.after = moment
			} else {
				f.before = moment
			}
			m, err := f.scan(root, ScanOptions{})
			stagingtest.WantError(t, err, "staging: scan of "+root, fmt.Sprintf(c.want, root),
				"when nothing writes to it any more")
			if m != nil {
				t.Error("there is a partial manifest")
			}
		})
	}
}

// TestScanUnreadableFolder makes one folder fail, the root or one deep in the tree.
func TestScanUnreadableFolder(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "b/c/d/2", "e/3")
	for _, folder := range []string{"", "a", "b/c/d"} {
		f := newFakeLister()
		f.before = func(path string) error {
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

// TestSystemLister lists one folder with every kind of entry.
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
	got, err := newFakeLister().list(t.Context(), dir)
	stagingtest.Must(t, err)
	if !slices.Equal(got.Files, want.Files) || !slices.Equal(got.Folders, want.Folders) ||
		!got.Others {
		t.Errorf("got %+v, want %+v", got, want)
	}
	root = stagingtest.Tree(t, "broken -> "+tooLong)
	_, err = newFakeLister().list(t.Context(), root)
	stagingtest.WantError(t, err, root+"/broken: file name too long")
}
