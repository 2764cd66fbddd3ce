package index

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler"
	"rankpool/staging/stagingtest"
)

func TestScanOrder(t *testing.T) {
	for _, c := range []struct {
		name          string
		tree          []string
		classes, want []string
	}{
		{
			"classes and files by name",
			[]string{"dog/2", "dog/10", "cat/b", "cat/a", "Ant/z"},
			[]string{"Ant", "cat", "dog"},
			[]string{"0 Ant/z", "1 cat/a", "1 cat/b", "2 dog/10", "2 dog/2"},
		},
		{
			"a class's sub-folders before the next class",
			[]string{"a-b/1", "a/x/1", "a/1"},
			[]string{"a", "a-b"},
			[]string{"0 a/1", "0 a/x/1", "1 a-b/1"},
		},
		{
			"sub-folders by whole path",
			[]string{"c/a/b/1", "c/a-b/1", "c/a/1", "c/z"},
			[]string{"c"},
			[]string{"0 c/z", "0 c/a/1", "0 c/a-b/1", "0 c/a/b/1"},
		},
		{
			"an empty class keeps its label",
			[]string{"b/1", "a/", "c/sub/"},
			[]string{"a", "b", "c"},
			[]string{"1 b/1"},
		},
		{
			"hidden is left out",
			[]string{".git/x", "a/.x", "a/x", ".DS_Store", "a/.y/z"},
			[]string{"a"},
			[]string{"0 a/x"},
		},
		{"flat", []string{"b", "a", ".c"}, []string{""}, []string{"0 a", "0 b"}},
		{
			"odd names",
			[]string{"a\nb/\xff", "a\nb/x\ny", "a\nb/\ue000", "a\nb/ä"},
			[]string{"a\nb"},
			[]string{"0 a\nb/x\ny", "0 a\nb/ä", "0 a\nb/\xff", "0 a\nb/\ue000"},
		},
		{
			"links",
			[]string{"a/1", "b -> a", "c/2 -> ../a/1", "c/sub -> ../a"},
			[]string{"a", "b", "c"},
			[]string{"0 a/1", "1 b/1", "2 c/2", "2 c/sub/1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := scan(t, stagingtest.Tree(t, c.tree...))
			if got := samples(m); !slices.Equal(got, c.want) {
				t.Errorf("samples %q, want %q", got, c.want)
			}
			if !slices.Equal(m.Classes(), c.classes) {
				t.Errorf("classes %q, want %q", m.Classes(), c.classes)
			}
		})
	}
}

func TestScanColumns(t *testing.T) {
	root := stagingtest.Tree(t, "cat/1.png", "dog/12.png")
	m := scan(t, root)
	if m.Len() != 2 || m.TotalBytes() != 9+10 || m.Root() != root {
		t.Fatalf("got %d samples, %d bytes, root %s", m.Len(), m.TotalBytes(), m.Root())
	}
	for id, want := range []string{"cat/1.png", "dog/12.png"} {
		id := scheduler.SampleID(id)
		if m.Path(id) != filepath.Join(root, want) || m.Size(id) != int64(len(want)) ||
			m.Offset(id) != 0 ||
			m.ModTime(id) != stagingtest.ModTime.UnixNano() {
			t.Errorf("sample %d: %s, %d bytes at %d, %d", id, m.Path(id), m.Size(id), m.Offset(id),
				m.ModTime(id))
		}
	}
	if slash := m.WithRoot("/"); slash.Path(0) != "/cat/1.png" || m.Root() != root {
		t.Errorf("under / it is %s", slash.Path(0))
	}
}

func TestScanErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		tree []string
		want []string
	}{
		{"empty", nil, []string{"holds no sample"}},
		{"only empty folders", []string{"a/", "b/c/"}, []string{"holds no sample"}},
		{"only hidden files", []string{".a", "a/.b"}, []string{"holds no sample"}},
		{
			"a file beside classes",
			[]string{"a/1", "README"},
			[]string{"/README is beside class folders"},
		},
		{"a link to nowhere", []string{"a/1", "a/2 -> gone"}, []string{"/a/2: no such file"}},
		{"a link to itself", []string{"a/1", "a/2 -> 2"}, []string{"/a/2: too many levels"}},
		{"a loop", []string{"a/1", "a/b/c -> ../../a"}, []string{"/a/b/c leads back to ", "/a, so"}},
		{"a loop through the root", []string{"a/1", "b -> ."}, []string{"/b leads back to "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := stagingtest.Tree(t, c.tree...)
			m, err := Scan(context.Background(), root, ScanOptions{Concurrency: 3})
			stagingtest.WantError(t, err, append(c.want, "staging: ", root)...)
			if m != nil {
				t.Error("there is a partial manifest")
			}
		})
	}
	root := stagingtest.Tree(t, "file")
	_, err := Scan(context.Background(), filepath.Join(root, "file"), ScanOptions{})
	stagingtest.WantError(t, err, "/file", "not a directory")
	_, err = Scan(context.Background(), filepath.Join(root, "gone"), ScanOptions{})
	stagingtest.WantError(t, err, "/gone", "no such file")
}

// TestScanUnreadable scans without permission to read everything, even if root runs the test.
func TestScanUnreadable(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "b/c/2")
	stagingtest.Must(t, os.Chmod(filepath.Join(root, "b/c"), 0))
	t.Cleanup(func() { os.Chmod(filepath.Join(root, "b/c"), 0o755) })
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var caps [2]unix.CapUserData
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capget(&head, &caps[0]); err != nil {
			result <- err
			return
		}
		caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err := unix.Capset(&head, &caps[0]); err != nil {
			result <- err
			return
		}
		_, err := Scan(
			context.Background(),
			root,
			ScanOptions{Concurrency: 1},
		) // 1: on this goroutine
		result <- err
	}()
	stagingtest.WantError(t, <-result, filepath.Join(root, "b/c"), "permission denied")
}

func TestScanCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Scan(ctx, stagingtest.Tree(t, "a/1"), ScanOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestScanProgress(t *testing.T) {
	var seen []int64
	root := stagingtest.Tree(t, "a/1", "a/2", "b/1", "c/d/1", "c/d/2")
	_, err := Scan(context.Background(), root,
		ScanOptions{Progress: func(n int64) { seen = append(seen, n) }})
	stagingtest.Must(t, err)
	if !slices.IsSorted(seen) || len(seen) != 3 || seen[2] != 5 {
		t.Errorf("progress %d", seen)
	}
}

// TestScanSettles checks, by the clock of a synctest bubble, that a folder that has just changed is
// not listed before the step of its time stamp has ended.
func TestScanSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ age, wait time.Duration }{
			{time.Nanosecond, 20*time.Millisecond - time.Nanosecond},
			{19 * time.Millisecond, time.Millisecond},
			{20 * time.Millisecond, 0},
			{-time.Millisecond, 0}, // its clock is ahead of ours
			{0, 1020 * time.Millisecond},
			{time.Second, 20 * time.Millisecond},
			{2 * time.Second, 0}, // whole seconds
		} {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			root := stagingtest.Tree(t, "1")
			changed := time.Now().Add(-c.age)
			stagingtest.Must(t, os.Chtimes(root, changed, changed))
			begin := time.Now()
			if m := scan(t, root); m.Folders()[0].ModTime != changed.UnixNano() {
				t.Errorf("age %s: noted %d, want %d", c.age, m.Folders()[0].ModTime, changed.UnixNano())
			}
			if wait := time.Since(begin); wait != c.wait {
				t.Errorf("age %s: waited %s, want %s", c.age, wait, c.wait)
			}
		}
	})
}

// TestScanManyFiles scans a folder with more files than a chunk, and more folders than goroutines.
func TestScanManyFiles(t *testing.T) {
	root := t.TempDir()
	var want []string
	for i := range 3*statChunk + 7 {
		name := string([]rune{rune('a' + i/26/26), rune('a' + i/26%26), rune('a' + i%26)})
		stagingtest.Must(t, os.MkdirAll(filepath.Join(root, "c", "d"+name[:2]), 0o755))
		stagingtest.Must(t, os.WriteFile(filepath.Join(root, "c", name), nil, 0o644))
		want = append(want, "0 c/"+name)
	}
	for _, concurrency := range []int{1, 4, 64} {
		m, err := Scan(context.Background(), root, ScanOptions{Concurrency: concurrency})
		stagingtest.Must(t, err)
		if got := samples(m); !slices.Equal(got, want) {
			t.Errorf("concurrency %d: %d samples, want %d", concurrency, len(got), len(want))
		}
	}
}
