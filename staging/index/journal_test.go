package index

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

func openJournal(t testing.TB, path, root string) *Journal {
	t.Helper()
	j, err := OpenJournal(path, root, false)
	stagingtest.Must(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

// TestJournalKilled kills an indexing run with SIGKILL, twice, and resumes: no folder is listed
// twice, and the manifest is that of an uninterrupted scan.
func TestJournalKilled(t *testing.T) {
	const variable = "RANKPOOL_TEST_JOURNAL"
	if job := os.Getenv(variable); job != "" {
		beKilled(t, job)
		return
	}
	root := t.TempDir()
	for i := range 30 {
		stagingtest.Grow(t, root, fmt.Sprintf("c%d/d%d/a", i%3, i), fmt.Sprintf("c%d/d%d/b\n", i%3, i))
	}
	path := filepath.Join(t.TempDir(), "m.parquet.partial")
	listed := 0
	for _, want := range []int{5, 18} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestJournalKilled$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s:%s", variable, want, path, root))
		out, err := cmd.StdoutPipe()
		stagingtest.Must(t, err)
		stagingtest.Must(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		stagingtest.Must(t, err)
		if line != "waiting\n" {
			t.Fatalf("the child says %q", line)
		}
		stagingtest.Must(t, cmd.Process.Kill()) // SIGKILL
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
		listed += want
	}
	j := openJournal(t, path, root)
	folders, _ := j.Found()
	if folders != listed {
		t.Errorf("the journal has %d folders, want %d", folders, listed)
	}
	f := newFakeLister()
	m, err := f.scan(root, ScanOptions{Journal: j})
	stagingtest.Must(t, err)
	if all := 1 + 3 + 30; f.total() != all-listed {
		t.Errorf("%d folders were listed, want %d of %d", f.total(), all-listed, all)
	}
	if difference := differ(m, scan(t, root)); difference != "" {
		t.Error(difference)
	}
	stagingtest.Must(t, j.Remove())
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the journal is still there: %v", err)
	}
}

// beKilled is the child: it lists as many folders as job says, reports that, and waits.
func beKilled(t *testing.T, job string) {
	count, rest, _ := strings.Cut(job, ":")
	path, root, _ := strings.Cut(rest, ":")
	j := openJournal(t, path, root)
	f := newFakeLister()
	f.before = func(path string, n int) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n == 1 && fmt.Sprint(f.total()) == count {
			fmt.Println("waiting")
			select {} // until killed
		}
		return nil
	}
	_, err := Scan(context.Background(), root, ScanOptions{Journal: j, Concurrency: 1, lister: f})
	t.Fatalf("the scan continued: %v", err)
}

// TestJournalOutOfDate changes folders between two runs: those are listed again, and only those.
func TestJournalOutOfDate(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "b/2", "b/c/3", "d/4")
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path, root)
	_, err := Scan(context.Background(), root, ScanOptions{Journal: j})
	stagingtest.Must(t, err)
	stagingtest.Must(t, j.Close())
	stagingtest.Grow(t, root, "b/5", "e/6")
	stagingtest.Must(t, os.RemoveAll(filepath.Join(root, "d")))
	f := newFakeLister()
	m, err := f.scan(root, ScanOptions{Journal: openJournal(t, path, root)})
	stagingtest.Must(t, err)
	if got, want := samples(m), []string{"0 a/1", "1 b/2", "1 b/5", "1 b/c/3", "2 e/6"}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("samples %q, want %q", got, want)
	}
	want := map[string]int{root: 1, root + "/b": 1, root + "/e": 1}
	if fmt.Sprint(f.listed) != fmt.Sprint(want) {
		t.Errorf("listed %v, want %v", f.listed, want)
	}
}

// TestJournalOfAnother checks that a run drops what another one recorded.
func TestJournalOfAnother(t *testing.T) {
	root := stagingtest.Tree(t, "a/1")
	path := filepath.Join(t.TempDir(), "journal")
	fill := func() {
		j := openJournal(t, path, root)
		_, err := Scan(context.Background(), root, ScanOptions{Journal: j})
		stagingtest.Must(t, err)
		_, err = OpenJournal(path, root, false)
		stagingtest.WantError(t, err, "staging: journal: another index writes to "+path)
		stagingtest.Must(t, j.Close())
	}
	for _, c := range []struct {
		root string
		sync bool
		want int
	}{{root, false, 2}, {root + "/a", false, 0}, {"/", false, 0}, {root, true, 0}} {
		stagingtest.Must(t, os.RemoveAll(path))
		fill()
		j, err := OpenJournal(path, c.root, c.sync)
		stagingtest.Must(t, err)
		if folders, _ := j.Found(); folders != c.want {
			t.Errorf("root %s, sync %t: %d folders, want %d", c.root, c.sync, folders, c.want)
		}
		stagingtest.Must(t, j.Close())
		again, err := OpenJournal(path, c.root, c.sync)
		stagingtest.Must(t, err)
		if folders, _ := again.Found(); folders != c.want {
			t.Errorf("root %s, sync %t, again: %d folders, want %d", c.root, c.sync, folders, c.want)
		}
		stagingtest.Must(t, again.Close())
	}
	stagingtest.Must(t, os.WriteFile(path, []byte("something else\n"), 0o644))
	if folders, _ := openJournal(t, path, root).Found(); folders != 0 {
		t.Errorf("%d folders in something else", folders)
	}
	_, err := OpenJournal(filepath.Join(path, "x"), root, false)
	stagingtest.WantError(t, err, "staging: journal: open "+path+"/x: not a directory")
}

// TestJournalFull checks that a scan on a full disk returns an error.
func TestJournalFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	stagingtest.Must(t, err)
	defer full.Close()
	root := stagingtest.Tree(t, "a/1")
	m, err := Scan(context.Background(), root, ScanOptions{Journal: &Journal{file: full}})
	stagingtest.WantError(
		t,
		err,
		"staging: scan of "+root+": journal: write /dev/full: no space left on device",
	)
	if m != nil {
		t.Error("there is a partial manifest")
	}
}

// TestJournalDamaged truncates a journal anywhere, or changes a byte: the remaining records are
// right, and a scan can resume from them.
func TestJournalDamaged(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "a/\xff\n2", "b/c/3", "b/l -> ../a", "d/")
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j := openJournal(t, path, root)
	want, err := Scan(context.Background(), root, ScanOptions{Journal: j})
	stagingtest.Must(t, err)
	stagingtest.Must(t, j.keepSum(want, 0, 17))
	stagingtest.Must(t, j.Close())
	whole, err := os.ReadFile(path)
	stagingtest.Must(t, err)
	rapid.Check(t, func(t *rapid.T) {
		data := slices.Clone(whole)
		at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
		if rapid.Bool().Draw(t, "cut") {
			data = data[:at]
		} else {
			data[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "xor"))
		}
		path := filepath.Join(dir, "damaged")
		must2(t, os.WriteFile(path, data, 0o644))
		for range 2 {
			j, err := OpenJournal(path, root, false)
			must2(t, err)
			m, err := Scan(context.Background(), root, ScanOptions{Journal: j, Concurrency: 2})
			must2(t, err)
			if difference := differ(m, want); difference != "" {
				t.Fatal(difference)
			}
			if sum, found := j.sum(m, 0); found && sum != 17 {
				t.Fatalf("the checksum is %d", sum)
			}
			must2(t, j.Close())
		}
		j, err := OpenJournal(path, root, false)
		must2(t, err)
		if folders, _ := j.Found(); folders != 6 { // the root, a, b, b/c, b/l, d
			t.Fatalf("the mended journal has %d folders", folders)
		}
		must2(t, j.Close())
	})
}

func TestListingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &listing{modTime: rapid.Int64().Draw(t, "time")}
		for _, name := range rapid.SliceOfN(oddName(), 0, 8).Draw(t, "files") {
			l.files = append(l.files, scannedFile{
				name, rapid.Int64Range(0, 1<<62).Draw(t, "size"),
				rapid.Int64().Draw(t, "time"),
			})
		}
		for _, name := range rapid.SliceOfN(oddName(), 0, 8).Draw(t, "folders") {
			l.folders = append(l.folders, subFolder{name, rapid.Bool().Draw(t, "link")})
		}
		got, err := parseListing(l.append(nil))
		if err != nil || got.modTime != l.modTime || !slices.Equal(got.files, l.files) ||
			!slices.Equal(got.folders, l.folders) {
			t.Fatalf("%+v became %+v, %v", l, got, err)
		}
	})
}

func FuzzParseListing(f *testing.F) {
	f.Add(
		(&listing{5, []scannedFile{{"a", 1, 2}, {"\xff", 0, -1}}, []subFolder{{"b", true}}}).append(
			nil),
	)
	f.Add([]byte{0, 1, 200, 1, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parseListing(data)
		if err != nil {
			return
		}
		again, err := parseListing(l.append(nil))
		if err != nil || !slices.Equal(again.files, l.files) ||
			!slices.Equal(again.folders, l.folders) {
			t.Errorf("%+v became %+v, %v", l, again, err)
		}
		for _, file := range l.files {
			if file.size < 0 || dataset.CheckName([]byte(file.name)) != nil {
				t.Errorf("a file %+v", file)
			}
		}
	})
}

func FuzzParseJournal(f *testing.F) {
	path := filepath.Join(f.TempDir(), "journal")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	stagingtest.Must(f, err)
	j := &Journal{file: file}
	stagingtest.Must(f, j.keep("a/b", &listing{5, []scannedFile{{"c", 1, 2}}, nil}))
	m, err := dataset.Build("/", []string{"a"}, 1, func(int) dataset.Sample {
		return dataset.Sample{Path: "a/c", Size: 3, ModTime: 4}
	})
	stagingtest.Must(f, err)
	stagingtest.Must(f, j.keepSum(m, 0, 9))
	data, err := os.ReadFile(path)
	stagingtest.Must(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		j := &Journal{folders: map[string]*listing{}, sums: map[sumKey]sumRecord{}}
		end := j.parse(data)
		if end < 0 || end > len(data) {
			t.Fatalf("%d of %d bytes are whole", end, len(data))
		}
		for path := range j.folders {
			if dataset.CheckFolder(path) != nil {
				t.Errorf("a folder %q", path)
			}
		}
	})
}

// TestJournalLock checks that a journal is locked while it is open.
func TestJournalLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path, "/")
	held, err := os.Open(path)
	stagingtest.Must(t, err)
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		t.Error("an open journal is not locked")
	}
	stagingtest.Must(t, j.Close())
	stagingtest.Must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}
