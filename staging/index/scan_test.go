package index

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/shards"
	"rankpool/staging/stagingtest"
	"rankpool/staging/storage"
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
		id := draw.SampleID(id)
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
			"more files beside classes than in them",
			[]string{"a/1", "README", "b"},
			[]string{"/README is beside class folders", "name the folder that holds the samples"},
		},
		{"only links to nowhere", []string{"a/2 -> gone"}, []string{"holds no sample"}},
		{"a loop", []string{"a/1", "a/b/c -> ../../a"}, []string{"/a/b/c leads back to ", "/a, so"}},
		{"a loop through the root", []string{"a/1", "b -> ."}, []string{"/b leads back to "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := stagingtest.Tree(t, c.tree...)
			m, err := Scan(context.Background(), root, ScanOptions{})
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
			ScanOptions{requests: 1},
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
	m, err := Scan(context.Background(), root, ScanOptions{})
	stagingtest.Must(t, err)
	if got := samples(m); !slices.Equal(got, want) {
		t.Errorf("%d samples, want %d", len(got), len(want))
	}
}

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
			m, err := Scan(context.Background(), root, ScanOptions{Group: groups[ranks]})
			if len(want) == 0 {
				if err == nil || !strings.Contains(err.Error(), "holds no sample") {
					t.Fatalf("no files, but %v", err)
				}
				continue
			}
			must2(t, err)
			var got []string
			for id := range draw.SampleID(m.Len()) {
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

// tarFile makes a tar file of members, each a name, "=" and its content.
func tarFile(t testing.TB, members ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, member := range members {
		name, content, _ := strings.Cut(member, "=")
		stagingtest.Must(t, w.WriteHeader(&tar.Header{
			Name: name, Size: int64(len(content)), Mode: 0o644,
			Typeflag: tar.TypeReg,
		}))
		_, err := w.Write([]byte(content))
		stagingtest.Must(t, err)
	}
	stagingtest.Must(t, w.Close())
	return out.Bytes()
}

// recordFile makes a TFRecord file.
func recordFile(records ...string) (out []byte) {
	for _, record := range records {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(record)))
		out = binary.LittleEndian.AppendUint32(append(out, head...), shards.MaskedCRC(head))
		out = binary.LittleEndian.AppendUint32(append(out, record...), shards.MaskedCRC([]byte(record)))
	}
	return out
}

// put writes a file below root.
func put(t testing.TB, root, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(root, name)
	stagingtest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	stagingtest.Must(t, os.WriteFile(path, data, 0o644))
	stagingtest.Must(t, os.Chtimes(path, stagingtest.ModTime, stagingtest.ModTime))
	return path
}

// fetched fetches sample id.
func fetched(t testing.TB, m *dataset.Manifest, id draw.SampleID, opt storage.FetchOptions) (
	string, storage.Stats, error,
) {
	t.Helper()
	f := storage.NewFetcher(m, opt)
	defer f.Close()
	into := make([]byte, m.Size(id))
	done := make(chan error)
	f.Fetch(id, into, 0, func(err error) { done <- err })
	err := <-done
	return string(into), f.Stats(), err
}

// described lists "label format kind=content …" of every sample.
func described(t testing.TB, m *dataset.Manifest) (list []string) {
	t.Helper()
	for id := range draw.SampleID(m.Len()) {
		data, _, err := fetched(t, m, id, storage.FetchOptions{})
		stagingtest.Must(t, err)
		text := fmt.Sprintf("%d %s", m.Label(id), m.Format(id))
		for _, member := range m.Members(id) {
			text += " " + member.Kind + "=" + data[:member.Size]
			data = data[member.Size:]
		}
		list = append(list, text+data)
	}
	return list
}

func TestScanShards(t *testing.T) {
	cls := []string{"a.jpg=A", "a.cls=1", "b.jpg=B", "b.cls=3"}
	for _, c := range []struct {
		name             string
		files            map[string][]byte
		samples, classes []string
	}{
		{"all formats in class folders", map[string][]byte{
			"cat/1.JPG": []byte("one"), "cat/s.tar": tarFile(t, "x/a.jpg=A", "x/a.json={}", "b.jpg=B"),
			"dog/r.tfrecord": recordFile("R", "", "SS"), "dog/t.tfrec-00000-of-00001": recordFile("T"),
			"dog/empty.tar": tarFile(t), "emu/9": nil,
		}, []string{
			"0 file jpg=one", "0 tar jpg=A json={}", "0 tar jpg=B", "1 tfrecord tfrecord=R",
			"1 tfrecord tfrecord=",
			"1 tfrecord tfrecord=SS", "1 tfrecord tfrecord=T", "2 file =",
		}, []string{"cat", "dog", "emu"}},
		{
			"class numbers",
			map[string][]byte{"s.tar": tarFile(t, cls...), "sub/t.tar": tarFile(t, "c.cls=0")},
			[]string{"1 tar jpg=A cls=1", "3 tar jpg=B cls=3", "0 tar cls=0"},
			[]string{"0", "1", "2", "3"},
		},
		{
			"class numbers beside class folders",
			map[string][]byte{"s.tar": tarFile(t, cls...), "cat/1": []byte("c"), "dog/1": []byte("d")},
			[]string{"1 tar jpg=A cls=1", "3 tar jpg=B cls=3", "0 file =c", "1 file =d"},
			[]string{"cat", "dog", "2", "3"},
		},
		{
			"no classes",
			map[string][]byte{"s.tar": tarFile(t, "a.jpg=A")},
			[]string{"0 tar jpg=A"},
			[]string{""},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, data := range c.files {
				put(t, root, name, data)
			}
			m := scan(t, root)
			if got := described(t, m); !slices.Equal(got, c.samples) ||
				!slices.Equal(m.Classes(), c.classes) {
				t.Errorf("classes %q, samples\n%q, want %q\n%q", m.Classes(), got, c.classes, c.samples)
			}
			whole, err := Scan(t.Context(), root, ScanOptions{WholeFiles: true})
			if len(c.files) != 1 &&
				c.name != "all formats in class folders" { // shards beside folders
				stagingtest.WantError(t, err, "s.tar is beside class folders")
			} else if stagingtest.Must(t, err); whole.Formats()[0].Samples != whole.Len() {
				t.Errorf("as files there are %d samples, want %d", whole.Len(), len(c.files))
			}
		})
	}
}

func TestScanShardErrors(t *testing.T) {
	whole := tarFile(t, "a.jpg=A", "b.jpg=B")
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{
			"s.tar", whole[:600],
			`s.tar is truncated: its next header or end mark at byte 1024 needs 1536 bytes of the file, which has 600`,
		},
		{"s.tar", nil, "s.tar is truncated"},
		{"s.tfrecord", recordFile("R")[:10], "s.tfrecord is truncated: record 0 at byte 0"},
		{"s.tar", tarFile(t), "holds no sample"},
	} {
		root := t.TempDir()
		put(t, root, c.name, c.data)
		_, err := Scan(t.Context(), root, ScanOptions{})
		stagingtest.WantError(t, err, "staging: ", root, c.want)
	}
	root := t.TempDir()
	put(t, root, "s.tar", whole)
	put(t, root, "cat/1", nil)
	_, err := Scan(t.Context(), root, ScanOptions{})
	stagingtest.WantError(t, err, "s.tar is beside class folders and belongs to no class")
	f := shardFile{
		scannedFile: scannedFile{"s.tar", int64(len(whole)), stagingtest.ModTime.UnixNano() - 1},
		path:        filepath.Join(root, "s.tar"), format: dataset.FormatTar,
	}
	stagingtest.WantError(t, f.read(), "s.tar changes while it is indexed")
}

func TestFormats(t *testing.T) {
	root := t.TempDir()
	for name, data := range map[string][]byte{
		"a/1": nil, "a/2": nil, "a/x.npy": nil, "a/s.tar": tarFile(t, "a.x=", "b.x="),
		"b/s.tar": tarFile(t, "a.x="),
	} {
		put(t, root, name, data)
	}
	got := scan(t, root).Formats()
	if want := "[{file 3 3} {tar 3 2}]"; fmt.Sprint(got) != want {
		t.Errorf("formats %v, want %v", got, want)
	}
}

// TestFormatByName checks which names are shards.
func TestFormatByName(t *testing.T) {
	for name, want := range map[string]dataset.Format{
		"a.tar": dataset.FormatTar, "A.TAR": dataset.FormatTar,
		"a.tar.gz": dataset.FormatFile, "tar": dataset.FormatFile,
		"a.npy": dataset.FormatFile, "a.npz": dataset.FormatFile,
		"a.tfrecord": dataset.FormatTFRecord, "a.tfrecords": dataset.FormatTFRecord,
		"a.tfrec":                   dataset.FormatTFRecord,
		"a.tfrecx":                  dataset.FormatFile,
		"a.tfrecord-00001-of-00010": dataset.FormatTFRecord, "a.tfrecord-1": dataset.FormatFile,
		"train-00001-of-00010": dataset.FormatFile,
	} {
		if got := formatByName(name); got != want {
			t.Errorf("%s is of format %s, want %s", name, got, want)
		}
	}
}

// TestReadRecordChecksum damages each byte of a record after the scan: its data are never
// delivered.
func TestReadRecordChecksum(t *testing.T) {
	root := t.TempDir()
	data := recordFile("0123456789", "next")
	path := put(t, root, "r.tfrecord", data)
	m := scan(t, root)
	for i := 12; i < 12+10+4; i++ {
		data[i] ^= 1
		put(t, root, "r.tfrecord", data)
		data[i] ^= 1
		_, stats, err := fetched(t, m, 0, storage.FetchOptions{})
		stagingtest.WantError(
			t,
			err,
			"staging: sample 0 (r.tfrecord): holds a damaged record",
			"(tried 2 times)",
		)
		if sample := (*storage.SampleError)(nil); !errors.Is(err, storage.ErrChecksum) ||
			!errors.As(err, &sample) ||
			stats.Retries != 1 {
			t.Errorf("%v after %d retries", err, stats.Retries)
		}
		next, _, err := fetched(t, m, 1, storage.FetchOptions{})
		if stagingtest.Must(t, err); next != "next" {
			t.Errorf("record 1 is %q", next)
		}
	}
	stagingtest.Must(t, os.Truncate(path, int64(len(data)-2)))
	stagingtest.Must(t, os.Chtimes(path, stagingtest.ModTime, stagingtest.ModTime))
	_, _, err := fetched(t, m, 1, storage.FetchOptions{})
	stagingtest.WantError(
		t,
		err,
		fmt.Sprintf("has %d bytes, the manifest says at least %d", len(data)-2,
			len(data)),
	)
}

// TestReadChecksums changes bytes without changing size or modification time.
func TestReadChecksums(t *testing.T) {
	root := t.TempDir()
	put(t, root, "1", []byte("good"))
	put(t, root, "s.tar", tarFile(t, "a.jpg=good", "a.cls=x"))
	m := scan(t, root)
	sums := []uint64{dataset.ChecksumOf([]byte("good")), dataset.ChecksumOf([]byte("goodx"))}
	m = m.WithChecksums(sums)
	for id := range draw.SampleID(2) {
		_, _, err := fetched(t, m, id, storage.FetchOptions{})
		stagingtest.Must(t, err)
	}
	put(t, root, "1", []byte("evil"))
	put(t, root, "s.tar", tarFile(t, "a.jpg=good", "a.cls=y"))
	for id := range draw.SampleID(2) {
		_, stats, err := fetched(t, m, id, storage.FetchOptions{})
		stagingtest.WantError(t, err, fmt.Sprintf("staging: sample %d ", id),
			"has other bytes than the manifest says: their checksum is wrong; index")
		if !errors.Is(err, storage.ErrChecksum) || stats.Retries != 1 || stats.Reads != 0 {
			t.Errorf("%v, counters %+v", err, stats)
		}
		_, _, err = fetched(t, m.WithChecksums(nil), id, storage.FetchOptions{})
		stagingtest.Must(t, err)
		_, _, err = fetched(t, m.WithChecksums(make([]uint64, 2)), id, storage.FetchOptions{})
		stagingtest.Must(t, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic for one checksum of two samples")
		}
	}()
	m.WithChecksums(sums[:1])
}
