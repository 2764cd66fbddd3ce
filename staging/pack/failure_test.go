package pack

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/stagingtest"
)

// TestMain packs and kills itself if TestKilledPackGoesOn has started it for that.
func TestMain(m *testing.M) {
	if src := os.Getenv("PACK_AND_DIE"); src != "" {
		packAndDie(src, os.Getenv("PACK_DEST"))
	}
	os.Exit(m.Run())
}

// A dyingFile kills the process at a write.
type dyingFile struct{ *os.File }

func (f dyingFile) Write(p []byte) (int, error) {
	_, _ = f.File.Write(p[:len(p)/2])
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func packAndDie(src, dest string) {
	m, err := index.Scan(context.Background(), src, index.ScanOptions{})
	if err != nil {
		panic(err)
	}
	var made atomic.Int64
	_, err = Run(context.Background(), m, Options{
		Dest: dest, ShardBytes: 10 << 10, create: func(dir, name string) (output, error) {
			file, err := os.CreateTemp(dir, "."+name+".*")
			if made.Add(1) == 6 {
				return dyingFile{file}, err
			}
			return file, err
		},
	})
	panic(err) // Run should have killed the process
}

func TestKilledPackGoesOn(t *testing.T) {
	by := startPython(t)
	src, dest := numbered(t, 60), filepath.Join(t.TempDir(), "dest")
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "PACK_AND_DIE="+src, "PACK_DEST="+dest)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the packer was not killed: %v, %s", err, out)
	}
	half := files(t, dest)
	if _, found := half[index.ManifestName]; found {
		t.Fatal("an incomplete pack has a manifest")
	}
	m := scan(t, src)
	opt := Options{Dest: dest, ShardBytes: 10 << 10}
	report := pack(t, m, opt)
	if report.Kept < 4 || report.Packed < 1 || report.Kept+report.Packed != report.Shards {
		t.Errorf("report %+v", report)
	}
	whole := filepath.Join(t.TempDir(), "whole")
	pack(t, m, Options{Dest: whole, ShardBytes: 10 << 10})
	if !maps.Equal(shardsOf(t, dest), shardsOf(t, whole)) {
		t.Error("a pack that continued differs from one that was not killed")
	}
	for name := range files(t, dest) {
		if isTemp(name) {
			t.Errorf("%s was left", name)
		}
	}
	checkPack(t, by, m, AsIs(m.Len()), dest)
	if again := pack(t, m, opt); again.Packed != 0 || again.Kept != again.Shards || again.Bytes != 0 {
		t.Errorf("a run over a complete pack: %+v", again)
	}
}

// A failingFile fails at a write.
type failingFile struct {
	*os.File
	err error
}

func (f failingFile) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: f.err}
}

func TestDestinationFails(t *testing.T) {
	by := startPython(t)
	m := scan(t, numbered(t, 60))
	for _, c := range []struct {
		err      error
		sentence string
	}{
		{unix.ENOSPC, ": free some, then run the same command again"},
		{unix.EDQUOT, "the quota at "},
		{unix.EROFS, " is on a read-only file system: name a folder"},
		{unix.EIO, ": input/output error"},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			dest := filepath.Join(t.TempDir(), "dest")
			var made atomic.Int64
			opt := Options{Dest: dest, ShardBytes: 10 << 10}
			opt.create = func(dir, name string) (output, error) {
				switch file, err := os.CreateTemp(dir, "."+name+".*"); {
				case made.Add(1) < 4:
					return file, err
				case errors.Is(c.err, unix.EROFS):
					_ = os.Remove(file.Name())
					return nil, &fs.PathError{Op: "open", Path: name, Err: c.err}
				default:
					return failingFile{file, c.err}, err
				}
			}
			_, err := Run(context.Background(), m, opt)
			stagingtest.WantError(t, err, c.sentence, dest)
			if !errors.Is(err, c.err) {
				t.Errorf("%v is not %v", err, c.err)
			}
			for name := range files(t, dest) {
				if isTemp(name) || name == index.ManifestName {
					t.Errorf("%s was left", name)
				}
			}
			opt.create = nil
			if report := pack(t, m, opt); report.Kept == 0 {
				t.Errorf("nothing was kept: %+v", report)
			}
			checkPack(t, by, m, AsIs(m.Len()), dest)
		})
	}
	_, err := Run(context.Background(), m, Options{Dest: filepath.Join(m.Path(0), "dest")})
	stagingtest.WantError(t, err, ": not a directory")
}

// A lossyFile changes what is written to it.
type lossyFile struct{ *os.File }

func (f lossyFile) Write(p []byte) (int, error) {
	other := append([]byte(nil), p...)
	other[blockBytes] ^= 1 // in the first sample
	return f.File.Write(other)
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	m := scan(t, numbered(t, 3))
	dest := filepath.Join(t.TempDir(), "dest")
	_, err := Run(context.Background(), m, Options{
		Dest: dest, create: func(dir, name string) (output, error) {
			file, err := os.CreateTemp(dir, "."+name+".*")
			return lossyFile{file}, err
		},
	})
	stagingtest.WantError(t, err, "pack-000000.tar was written to ",
		"reads back differently: the checksum of a sample is wrong")
	if found := shardsOf(t, dest); len(found) > 0 {
		t.Errorf("there is %v", found)
	}
}

func TestSourceChanges(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"shorter": func(t *testing.T, path string) { stagingtest.Must(t, os.Truncate(path, 3)) },
		"gone":    func(t *testing.T, path string) { stagingtest.Must(t, os.Remove(path)) },
		"modified": func(t *testing.T, path string) {
			stagingtest.Must(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := scan(t, numbered(t, 60))
			dest := filepath.Join(t.TempDir(), "dest")
			change(t, m.Path(50))
			group, end := groupOf(t, 2)
			_, err := Run(context.Background(), m, Options{Dest: dest, ShardBytes: 10 << 10, Group: group})
			end()
			stagingtest.WantError(t, err, "sample 50 (", "index the data set again")
			for name := range files(t, dest) {
				if name == index.ManifestName || isTemp(name) {
					t.Errorf("there is %s", name)
				}
			}
		})
	}
}

func TestEndedPackGoesOn(t *testing.T) {
	by := startPython(t)
	m := scan(t, numbered(t, 60))
	opt := Options{Dest: filepath.Join(t.TempDir(), "dest"), ShardBytes: 10 << 10}
	ctx, stop := context.WithCancelCause(context.Background())
	ended := errors.New("ended")
	opt.Progress = func(p Progress) {
		if p.Shards == 3 {
			stop(ended)
		}
	}
	_, err := Run(ctx, m, opt)
	if !errors.Is(err, ended) {
		t.Fatalf("the error is %v, want the context's cause", err)
	}
	opt.Progress = nil
	if report := pack(t, m, opt); report.Kept < 3 {
		t.Errorf("report %+v", report)
	}
	checkPack(t, by, m, AsIs(m.Len()), opt.Dest)
}

func TestDamagedShardIsWrittenAgain(t *testing.T) {
	by := startPython(t)
	m := scan(t, numbered(t, 60))
	opt := Options{Dest: filepath.Join(t.TempDir(), "dest"), ShardBytes: 10 << 10}
	pack(t, m, opt)
	want := shardsOf(t, opt.Dest)
	for name, damage := range map[string]func(path string) error{
		"cut off": func(path string) error { return os.Truncate(path, 4096) },
		"gone":    os.Remove,
		"a pipe": func(path string) error {
			return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644))
		},
		"another byte": func(path string) error {
			text := []byte(want[filepath.Base(path)])
			text[600] ^= 1
			return os.WriteFile(path, text, 0o644)
		},
	} {
		stagingtest.Must(t, damage(filepath.Join(opt.Dest, "pack-000002.tar")))
		// While it is written again the pack is incomplete.
		opt.create = func(dir, name string) (output, error) { return nil, unix.ENOSPC }
		_, err := Run(context.Background(), m, opt)
		stagingtest.WantError(t, err, "no space is left")
		if _, err := os.Stat(filepath.Join(opt.Dest, index.ManifestName)); !errors.Is(
			err, fs.ErrNotExist) {
			t.Errorf("%s: an incomplete pack has a manifest (%v)", name, err)
		}
		opt.create = nil
		if report := pack(t, m, opt); report.Packed != 1 || !maps.Equal(shardsOf(t, opt.Dest), want) {
			t.Errorf("%s: report %+v", name, report)
		}
		checkPack(t, by, m, AsIs(m.Len()), opt.Dest)
	}
}

func TestDestinationHoldsSomethingElse(t *testing.T) {
	m := scan(t, numbered(t, 10))
	dest := t.TempDir()
	grow(t, dest, map[string]string{"thesis.tex": "years"})
	before := files(t, dest)
	_, err := Run(context.Background(), m, Options{Dest: dest})
	stagingtest.WantError(t, err, `holds "thesis.tex"`, "name a new folder")
	if !maps.Equal(before, files(t, dest)) {
		t.Error("a folder that is not ours was changed")
	}
	stagingtest.Must(t, os.Remove(filepath.Join(dest, "thesis.tex")))
	pack(t, m, Options{Dest: dest})
	for name, opt := range map[string]Options{
		"order": {Order: Shuffled(m.Len(), 1)}, "size": {ShardBytes: 2000}, "part": {Order: AsIs(3)},
	} {
		opt.Dest = dest
		before := files(t, dest)
		_, err = Run(context.Background(), m, opt)
		stagingtest.WantError(t, err, "holds another pack")
		if !maps.Equal(before, files(t, dest)) {
			t.Errorf("another %s has changed the pack", name)
		}
	}
	stagingtest.Must(t, os.Chtimes(m.Path(1), time.Unix(1, 0), time.Unix(1, 0)))
	_, err = Run(context.Background(), scan(t, m.Root()), Options{Dest: dest})
	stagingtest.WantError(t, err, "data that has changed since")
}

func TestTwoPackersDoNotMeet(t *testing.T) {
	m := scan(t, numbered(t, 10))
	dest := filepath.Join(t.TempDir(), "dest")
	tried := false
	pack(t, m, Options{Dest: dest, create: func(dir, name string) (output, error) {
		_, err := Run(context.Background(), m, Options{Dest: dest})
		stagingtest.WantError(t, err, "another rankpool pack writes to "+dest)
		tried = true
		return createTemp(dir, name)
	}})
	if !tried {
		t.Error("no other packer was tried")
	}
}

func TestWhatNoShardCanHold(t *testing.T) {
	members := []dataset.Member{{Kind: "a", Size: 1}, {Kind: "b", Size: 1}}
	sample := dataset.Sample{Path: "f", Format: dataset.FormatPart, Size: 2, Members: members}
	for kind, sentence := range map[string]string{
		"a/../../x": "which is not a file extension", "\x00": "which is not a file extension",
		"B": `two members of the kind "b"`,
	} {
		sample.Members[0].Kind = kind
		m := built(t, "/data", []string{""}, sample)
		_, err := NewPlan(m, AsIs(1), 1000)
		stagingtest.WantError(t, err, "pack: sample 0 (f) has ", sentence)
	}
	sample.Members = nil
	sample.Size = 1 << 62
	m := built(t, "/data", []string{""}, sample)
	_, err := NewPlan(m, AsIs(1), 1000)
	stagingtest.WantError(t, err, "has the impossible size of 4611686018427387904 bytes")
	_, err = NewPlan(m, []draw.SampleID{}, 1000)
	stagingtest.WantError(t, err, "no samples of /data")
}

func TestClassMembersHoldTheLabel(t *testing.T) {
	for name, tree := range map[string]map[string]string{
		"text in a class folder": {"a/s.tar": tarOf(t, "x.cls", "cat"), "b/1.jpg": "x"},
		"another number":         {"a/1.cls": "1", "a/2.cls": "1", "b/1.jpg": "x"},
		"a number and no class":  {"1.cls": "0", "2.jpg": "x"},
	} {
		src, dest := t.TempDir(), filepath.Join(t.TempDir(), "dest")
		grow(t, src, tree)
		_, err := Run(context.Background(), scan(t, src), Options{Dest: dest})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		stagingtest.WantError(t, err, "sample 0 (", "give that member another extension")
	}
	src, dest := t.TempDir(), filepath.Join(t.TempDir(), "dest")
	grow(t, src, map[string]string{"s.tar": tarOf(
		t, "x.jpg", "X", "x.cls", "3\n", "y.cls", "0", "y.jpg", "Y")})
	pack(t, scan(t, src), Options{Dest: dest})
	packed := open(t, dest)
	if packed.Label(0) != 3 || packed.Label(1) != 0 || plain(t, packed, 0) != "X3\n" ||
		len(packed.Classes()) != 4 {
		t.Errorf("labels %d, %d of classes %q, sample %q", packed.Label(0), packed.Label(1),
			packed.Classes(), plain(t, packed, 0))
	}
	src, dest = t.TempDir(), filepath.Join(t.TempDir(), "dest")
	grow(t, src, map[string]string{"1.cls": "1048576", "2.jpg": "x"}) // the number of no class
	pack(t, scan(t, src), Options{Dest: dest})
	if classes := open(t, dest).Classes(); !slices.Equal(classes, []string{""}) {
		t.Errorf("classes %q", classes)
	}
}
