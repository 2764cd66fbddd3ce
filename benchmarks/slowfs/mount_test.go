package slowfs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// makeTree writes files of many sizes and kinds, and returns their folder.
func makeTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, size := range map[string]int{
		"empty": 0, "a/one": 1, "a/page": 4096, "a/b/large": 3<<20 + 17, "a/b/new\nline": 100,
		"a/b/\xff\xfe": 100_000, "ü": 5,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		content := bytes.Repeat([]byte(name+strconv.Itoa(size)), size/len(name)+1)[:size]
		if err := os.WriteFile(path, content, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "no files"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a/one", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	return root
}

// wantSameTree compares two trees.
func wantSameTree(t *testing.T, got, want string) {
	t.Helper()
	if a, b := describe(t, got), describe(t, want); !reflect.DeepEqual(a, b) {
		t.Errorf("%s has other files than %s: %q and %q", got, want, a, b)
	}
}

// describe returns what is at each path of a tree: mode, modification time and content or target.
func describe(t *testing.T, root string) map[string]string {
	t.Helper()
	tree := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += info.ModTime().String() + strconv.Itoa(int(hash(string(content))))
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += target
		}
		tree[path[len(root):]] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestTheTreeIsTheSame(t *testing.T) {
	source := makeTree(t)
	for name, config := range map[string]Config{
		"direct": {}, "page cache": {PageCache: true},
		"timeouts": {EntryTimeout: time.Hour, AttrTimeout: time.Hour},
		"striped": {
			Targets: 3, Stripe: 1000, Bandwidth: 1e9, TargetBandwidth: 1e9,
			ReadLatency: time.Microsecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mountFor(t, source, config)
			wantSameTree(t, s.Dir(), source)
		})
	}
}

func TestCopyThroughItHasTheSameBytes(t *testing.T) {
	source, copied := makeTree(t), filepath.Join(t.TempDir(), "copied")
	s := mountFor(t, source, Config{
		OpenLatency: time.Millisecond, ReadLatency: time.Microsecond, EntryLatency: time.Microsecond,
		StatLatency: time.Microsecond,
		Bandwidth:   1e9, OpenRate: 1e5, Seed: 1,
	})
	if said, err := exec.Command("cp", "-a", s.Dir(), copied).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, said)
	}
	wantSameTree(t, copied, source)
	got := s.Stats()
	if twice := got.ReadTwice(); twice != nil {
		t.Errorf("cp has read %q twice", twice)
	}
	if got.Bytes != 1+4096+3<<20+17+100+100_000+5 || got.Opens != 7 || got.Entries < 9 {
		t.Errorf("counted %d bytes, %d opens, %d entries", got.Bytes, got.Opens, got.Entries)
	}
}

func TestFilesReadTwiceAreTold(t *testing.T) {
	for _, pageCache := range []bool{false, true} {
		s := mountFor(t, makeTree(t), Config{PageCache: pageCache})
		for _, name := range []string{"a/one", "a/page", "a/one"} {
			if _, err := os.ReadFile(filepath.Join(s.Dir(), name)); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Stats().ReadTwice(); !slices.Equal(got, []string{"a/one"}) {
			t.Errorf("page cache %v: read twice: %q", pageCache, got)
		}
	}
}

func TestPagesOutliveAnOpenFile(t *testing.T) {
	s := mountFor(t, makeTree(t), Config{
		PageCache: true, KeepCache: true, EntryTimeout: time.Hour, AttrTimeout: time.Hour,
	})
	for range 2 {
		content, err := os.ReadFile(filepath.Join(s.Dir(), "a/page"))
		if err != nil || len(content) != 4096 {
			t.Fatal(len(content), err)
		}
	}
	if got := s.Stats(); got.Opens != 2 || got.Bytes != 4096 {
		t.Errorf("counted %d opens and %d bytes", got.Opens, got.Bytes)
	}
}

func TestNothingCanBeWritten(t *testing.T) {
	source := makeTree(t)
	s := mountFor(t, source, Config{})
	before := describe(t, source)
	if err := os.WriteFile(filepath.Join(s.Dir(), "new"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a new file: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(s.Dir(), "a")); !errors.Is(err, syscall.EROFS) {
		t.Errorf("removing: %v", err)
	}
	if after := describe(t, source); !reflect.DeepEqual(before, after) {
		t.Error("the source has changed")
	}
}

func TestErrorsReachTheProgram(t *testing.T) {
	s := mountFor(t, makeTree(t), Config{Rules: []Rule{
		{Match: "a/one", Op: Open, Error: "ESTALE", Times: 1},
		{Match: "page", Op: Read, Error: "EIO", Times: 1},
		{Match: "a/b", Op: List, Error: "EIO", Times: 1},
		{Match: "empty", Op: Stat, Error: "ENOENT"},
	}})
	read := func(name string) error {
		// os.ReadFile would hide errors that pass.
		fd, err := unix.Open(filepath.Join(s.Dir(), name), unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		_, err = unix.Pread(fd, make([]byte, 10), 0)
		return err
	}
	list := func() error {
		_, err := os.ReadDir(filepath.Join(s.Dir(), "a/b"))
		return err
	}
	// The kernel itself opens again after ESTALE, once.
	if err := read("a/one"); err != nil || s.Stats().Errors != 1 ||
		s.Stats().Files["a/one"].Opens != 2 {
		t.Errorf("open after ESTALE: %v, %+v", err, s.Stats())
	}
	if err := read("a/page"); !errors.Is(err, syscall.EIO) {
		t.Errorf("first read: %v", err)
	}
	if err := read("a/page"); err != nil {
		t.Errorf("second read: %v", err)
	}
	if err := list(); !errors.Is(err, syscall.EIO) {
		t.Errorf("first listing: %v", err)
	}
	if err := list(); err != nil {
		t.Errorf("second listing: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(s.Dir(), "empty")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("stat: %v", err)
	}
}

// TestBandwidthIsKept reads more than the rate allows in 50 ms, and checks that it took at least
// that long; how much longer depends on the machine.
func TestBandwidthIsKept(t *testing.T) {
	s := mountFor(t, makeTree(t), Config{Bandwidth: 40e6})
	began := time.Now()
	if _, err := os.ReadFile(filepath.Join(s.Dir(), "a/b/large")); err != nil {
		t.Fatal(err)
	}
	if took, least := time.Since(began), (3<<20+17)*time.Second/40e6; took < least {
		t.Errorf("3 MiB at 40 MB/s took %v, want at least %v", took, least)
	}
}

func TestStatsInTheMount(t *testing.T) {
	s := mountFor(t, makeTree(t), Config{})
	if _, err := os.ReadFile(filepath.Join(s.Dir(), "a/page")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.Dir(), ".slowfs/stats"))
	if err != nil {
		t.Fatal(err)
	}
	var got Stats
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if got.Bytes != 4096 || got.Opens != 1 || got.Files["a/page"].Bytes != 4096 {
		t.Errorf("counted %+v", got)
	}
	s.ResetStats()
	if got := s.Stats(); got.Bytes != 0 {
		t.Errorf("after ResetStats: %+v", got)
	}
}

func TestMountRefusesNonsense(t *testing.T) {
	if _, err := Mount(t.TempDir(), t.TempDir(), Config{Targets: -1}); err == nil {
		t.Error("a configuration that makes no sense")
	}
	if _, err := Mount(filepath.Join(t.TempDir(), "x"), t.TempDir(), Config{}); !errors.Is(
		err, fs.ErrNotExist) {
		t.Errorf("a source that is not there: %v", err)
	}
	if _, err := Mount(t.TempDir(), filepath.Join(t.TempDir(), "x"), Config{}); err == nil ||
		!strings.HasPrefix(err.Error(), "slowfs: ") {
		t.Errorf("a mount point that is not there: %v", err)
	}
}

// mounted reports whether something is mounted at dir.
func mounted(t *testing.T, dir string) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(mounts), " "+dir+" ")
}

func TestClose(t *testing.T) {
	s, err := Mount(makeTree(t), t.TempDir(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if !mounted(t, s.Dir()) {
		t.Fatal("not mounted")
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if mounted(t, s.Dir()) {
		t.Error("still mounted after Close")
	}
	s.Wait()
}

func TestCloseWhileAFileIsOpen(t *testing.T) {
	s, err := Mount(makeTree(t), t.TempDir(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(s.Dir(), "a/one"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Close: %v, want EBUSY", err)
	}
	if mounted(t, s.Dir()) {
		t.Error("still mounted")
	}
	if _, err := f.Read(make([]byte, 1)); err == nil {
		t.Error("what was open can still be read")
	}
}

// TestCloseWhileAnotherNamespaceHasTheMount checks that Close unmounts although another mount
// namespace has a copy of the mount.
func TestCloseWhileAnotherNamespaceHasTheMount(t *testing.T) {
	s, err := Mount(makeTree(t), t.TempDir(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("unshare", "--mount", "sh", "-c", "echo; read end")
	input, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		input.Close()
		_ = other.Wait() // read fails at the end of its input
	}()
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if mounted(t, s.Dir()) {
		t.Error("still mounted")
	}
}

// TestCloseEndsStalls reads a file that answers after an hour.
func TestCloseEndsStalls(t *testing.T) {
	s, err := Mount(makeTree(t), t.TempDir(), Config{
		Rules: []Rule{{Match: "page", Op: Read, Stall: time.Hour}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	var reader sync.WaitGroup
	reader.Go(func() { _, failed = os.ReadFile(filepath.Join(s.Dir(), "a/page")) })
	for s.Stats().Stalls == 0 {
		runtime.Gosched() // The kernel sends the read; there is nothing to wait for.
	}
	_ = s.Close() // The file may still be open.
	reader.Wait()
	s.Wait() // This would take the hour if the answer still waited.
	if failed == nil {
		t.Error("the read did not fail")
	}
	if mounted(t, s.Dir()) {
		t.Error("still mounted")
	}
}

// mountFor mounts source at a temporary folder, until the test ends.
func mountFor(t *testing.T, source string, config Config) *Server {
	t.Helper()
	s, err := Mount(source, t.TempDir(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
