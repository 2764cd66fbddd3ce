package keep

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
)

func TestTheNextJobBeginsWarm(t *testing.T) {
	w := newWorld(t, 300, 1<<30)
	if c := w.fill(); c.Writes != 300 || c.Refused != 0 {
		t.Fatalf("%+v", c)
	}
	s := w.open()
	if n := w.found(s); n != 300 {
		t.Errorf("%d of 300 samples are read", n)
	}
	if c := s.Close(time.Minute); c.Reads != 300 || c.Changed != 0 {
		t.Errorf("%+v", c)
	}
	if w.log.Len() > 0 {
		t.Errorf("logged: %s", &w.log)
	}
}

func TestAnotherDataSetFindsNothing(t *testing.T) {
	w := newWorld(t, 100, 1<<30)
	w.fill()
	before := w.set
	for _, other := range []func(){
		func() { w.set.Identity = "changed" },
		func() { w.set.Ranks = 2 },
		func() { w.set.Ranks, w.set.Rank = 2, 1 },
	} {
		w.set = before
		other()
		if n := w.found(w.open()); n != 0 {
			t.Errorf("%+v finds %d samples", w.set, n)
		}
	}
}

// TestEachRankKeepsItsOwn checks that the ranks together keep every sample once.
func TestEachRankKeepsItsOwn(t *testing.T) {
	w := newWorld(t, 100, 1<<30)
	for w.set.Ranks = 3; w.set.Rank < 3; w.set.Rank++ {
		w.fill()
	}
	n := 0
	for w.set.Rank = 0; w.set.Rank < 3; w.set.Rank++ {
		n += w.found(w.open())
	}
	if n != 100 {
		t.Errorf("%d of 100 samples are read", n)
	}
}

// TestDamage checks that damaged bytes cost a read from storage, and are then copied again.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"a byte": func(path string) error { return overwrite(path, 5, []byte{0}, []byte{1}) },
		"gone":   os.Remove,
		"short":  func(path string) error { return os.Truncate(path, 10) },
		"long": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, info.Size()+1)
		},
		"a hole": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.Truncate(path, 0); err != nil {
				return err
			}
			return os.Truncate(path, info.Size())
		},
		"a FIFO": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return unix.Mkfifo(path, 0o600)
		},
		"a link": func(path string) error {
			if err := os.Rename(path, path+"x"); err != nil {
				return err
			}
			return os.Symlink(path+"x", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100, 1<<30)
			w.fill()
			if err := damage(w.files()[0]); err != nil {
				t.Fatal(err)
			}
			if n := w.found(w.open()); n == 100 || n < 40 {
				t.Errorf("%d of 100 samples are read", n)
			}
			s := w.open()
			for id := range draw.SampleID(100) {
				if w.read(s, id) == nil {
					s.Write(id, sample(id))
				}
			}
			s.Close(time.Minute)
			// A group that is a link, or too long, is replaced, so its whole samples are lost.
			s = w.open()
			for id := range draw.SampleID(100) {
				if w.read(s, id) == nil {
					s.Write(id, sample(id))
				}
			}
			s.Close(time.Minute)
			if n := w.found(w.open()); n != 100 {
				t.Errorf("%d of 100 samples are read after they were written again", n)
			}
		})
	}
}

// overwrite changes the byte at an offset to one of two.
func overwrite(path string, at int64, one, other []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	old := make([]byte, 1)
	if _, err := f.ReadAt(old, at); err != nil {
		return err
	}
	if bytes.Equal(old, one) {
		one = other
	}
	if _, err := f.WriteAt(one, at); err != nil {
		return err
	}
	return f.Close()
}

// TestCrash checks that whatever a crash leaves of the two files, samples are right or missing.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t, 60, 1<<30)
		w.fill()
		tags, err := filepath.Glob(filepath.Join(w.tags, "*"))
		if err != nil || len(tags) != 1 {
			r.Fatal(tags, err)
		}
		for _, path := range append(w.files(), tags...) {
			b, err := os.ReadFile(path)
			if err != nil {
				r.Fatal(err)
			}
			from := rapid.IntRange(0, len(b)).Draw(r, "from")
			to := rapid.IntRange(from, len(b)).Draw(r, "to")
			clear(b[from:to])
			if rapid.Bool().Draw(r, "short") {
				b = b[:to]
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				r.Fatal(err)
			}
		}
		w.found(w.open()) // fails at a wrong byte
	})
}

// TestTwoJobsAtOnce checks that two jobs of a user that write the same groups lose nothing.
func TestTwoJobsAtOnce(t *testing.T) {
	w := newWorld(t, 200, 1<<30)
	a, b := w.open(), w.open()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for id := range draw.SampleID(200) {
			a.Write(id, sample(id))
		}
	}()
	for id := range draw.SampleID(200) {
		b.Write(199-id, sample(199-id))
	}
	<-done
	a.Close(time.Minute)
	b.Close(time.Minute)
	if n := w.found(w.open()); n != 200 {
		t.Errorf("%d of 200 samples are read", n)
	}
}

// TestQuota checks that the folder never holds more than its quota, and that copies that have not
// been used for some time make room for others.
func TestQuota(t *testing.T) {
	w := newWorld(t, 300, 3<<20) // 6 MB
	w.fill()
	first := w.files()
	other := filepath.Join(filepath.Dir(first[0]), "model.pt")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(other, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if held(t, first) > 3<<20 || len(first) == 0 {
		t.Errorf("%d files of %d bytes", len(first), held(t, first))
	}
	s := w.open()
	if n := w.found(s); n < 100 || n > 200 {
		t.Errorf("%d of 300 samples are read", n)
	}
	w.set.Identity = "another data set"
	if c := w.fill(); c.Writes != 0 || c.Refused != 300 {
		t.Errorf("copies in use are evicted: %+v", c)
	}
	w.folder.now = func() time.Time { return time.Now().Add(usedFor) }
	if c := w.fill(); c.Writes < 100 {
		t.Errorf("%+v", c)
	}
	second := w.files()
	if held(t, second) > 3<<20 || slices.Equal(first, second) {
		t.Errorf("%d files of %d bytes", len(second), held(t, second))
	}
	if !slices.Contains(second, other) {
		t.Errorf("a file that is no copy was removed")
	}
}

func held(t *testing.T, paths []string) (bytes int64) {
	t.Helper()
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

func TestFolderIsRefused(t *testing.T) {
	part := func(dir string) string { return filepath.Join(dir, strconv.Itoa(os.Geteuid())) }
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"missing":     {os.Remove, "no such file or directory"},
		"everybody's": {func(dir string) error { return os.Chmod(dir, 0o777) }, "has mode 0777"},
		"a group's":   {func(dir string) error { return os.Chmod(dir, 0o770) }, "has mode 0770"},
		"part is a file": {
			func(dir string) error { return os.WriteFile(part(dir), nil, 0o600) }, "not a directory",
		},
		"part is a link": {
			func(dir string) error { return os.Symlink("/tmp", part(dir)) }, "not a directory",
		},
		"part that others list": {
			func(dir string) error { return mkdirAs(part(dir), 0o755) }, "it has mode 0755",
		},
		"part of another": {
			func(dir string) error { return mkdirOf(part(dir), 20001) }, "belongs to user 20001",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFolder(dir, 1<<20, false)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v, want %q", f, err, c.want)
			}
		})
	}
}

// mkdirAs makes a folder of a mode.
func mkdirAs(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// mkdirOf makes another user's folder, as only root can.
func mkdirOf(path string, uid int) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.Chown(path, uid, uid)
}

// TestModes checks that no other user can read or list anything.
func TestModes(t *testing.T) {
	w := newWorld(t, 100, 1<<30)
	w.fill()
	part := filepath.Dir(w.files()[0])
	tags, _ := filepath.Glob(filepath.Join(w.tags, "*"))
	for _, path := range append(append(w.files(), part), tags...) {
		if info, err := os.Stat(path); err != nil || info.Mode()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if err := os.Chmod(tags[0], 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := w.folder.Open(w.set)
	if err == nil || !strings.Contains(err.Error(), "readable by nobody else") {
		t.Errorf("tags that others can read: %v", err)
	}
}

func TestBrokenDiskIsGivenUp(t *testing.T) {
	w := newWorld(t, 100, 1<<30)
	w.fill()
	s := w.open()
	if err := w.folder.Close(); err != nil { // no file can be opened any more
		t.Fatal(err)
	}
	tried := 0
	for tried = range 100 {
		done := make(chan error, 1)
		if !s.Read(0, make([]byte, w.set.Size(0)), func(err error) { done <- err }) {
			break
		}
		if err := <-done; err == nil {
			t.Fatal("a sample was read from a folder that is closed")
		}
	}
	if tried > failuresMax || strings.Count(w.log.String(), "repeatedly") != 1 {
		t.Errorf("%d tries, log: %s", tried, &w.log)
	}
}
