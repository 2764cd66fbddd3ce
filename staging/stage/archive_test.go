package stage

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/staging/layout"
)

// TestArchivedFilesComeLast releases two of six files: each is read after all others of its rank,
// and counted once, even in pieces.
func TestArchivedFilesComeLast(t *testing.T) {
	for _, test := range []struct {
		name    string
		offline layout.Layout
	}{
		{"Lustre", layout.Layout{FileSystem: layout.Lustre, Kind: layout.KindRAID0, Released: true}},
		{"BeeGFS", layout.Layout{FileSystem: layout.BeeGFS, Stub: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			src, base := smallTree(t), t.TempDir()
			var mu sync.Mutex
			var order []string
			back := map[string]bool{} // from the archive
			source := newFaulty(func(op, path string) error {
				mu.Lock()
				defer mu.Unlock()
				if op == "read" {
					order = append(order, filepath.Base(path))
					back[filepath.Base(path)] = true
				}
				return nil
			})
			source.layouts = func(path string) (layout.Layout, error) {
				mu.Lock()
				defer mu.Unlock()
				if name := filepath.Base(path); (name == "large" || name == "file1") && !back[name] {
					return test.offline, nil
				}
				return striped(7), nil
			}
			reports, errs := stageAll(1, src, base, func(_ int, o *Options) { o.Source = source })
			mustDo(t, errs[0])
			checkSame(t, describe(t, src), describe(t, filepath.Join(base, "0")))
			if r := reports[0]; r.Released != 2 || r.Ranks[0].Released != 2 || r.Failed != 0 ||
				r.StorageBytes != 35000 || r.Targets["OST0007"] != 35000 {
				t.Errorf("%+v", r)
			}
			text := strings.Join(order, " ")
			if i := min(strings.Index(text, "large"), strings.Index(text, "file1")); i < 0 ||
				strings.ContainsAny(text[i:], "234") {
				t.Errorf("read in the order %s", text)
			}
		})
	}
}

// TestArchiveDoesNotAnswer stages a stub that cannot be opened: only that fails, and the error says
// what to do about it.
func TestArchiveDoesNotAnswer(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	source := newFaulty(on("open", "file3", unix.EWOULDBLOCK, 0))
	source.layouts = func(path string) (layout.Layout, error) {
		return layout.Layout{FileSystem: layout.BeeGFS, Stub: strings.HasSuffix(path, "file3")}, nil
	}
	reports, errs := stageAll(2, src, base, func(_ int, o *Options) {
		o.Mode, o.Source = Replicate, source
	})
	mustDo(t, errors.Join(errs...))
	r := reports[0]
	if r.Released != 1 || r.Failed != 2 || len(r.Failures) != 1 ||
		!strings.HasPrefix(r.Failures[0].Reason, "is only on a remote storage target") {
		t.Errorf("%+v, %+v", r, r.Failures)
	}
}

// asked counts how often the layouts of a source are requested.
type asked struct {
	System
	times atomic.Int64
}

func (a *asked) Layouts(root string) func(string) (layout.Layout, error) {
	a.times.Add(1)
	return a.System.Layouts(root)
}

// TestNoLayouts checks that each rank asks a file system without layouts once.
func TestNoLayouts(t *testing.T) {
	source := &asked{}
	reports, errs := stageAll(3, smallTree(t), t.TempDir(),
		func(_ int, o *Options) { o.Mode, o.Source = Replicate, source })
	mustDo(t, errors.Join(errs...))
	if n := source.times.Load(); n != 3 || reports[0].Released != 0 || reports[0].Targets != nil {
		t.Errorf("asked %d times; %+v", n, reports[0])
	}
}
