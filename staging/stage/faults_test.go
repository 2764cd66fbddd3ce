package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// faulty fails what ask fails, and counts how often each file of the source is opened.
type faulty struct {
	ask func(op, path string) error

	mu    sync.Mutex
	opens map[string]int
}

func newFaulty(ask func(op, path string) error) *faulty {
	return &faulty{ask: ask, opens: map[string]int{}}
}

// fault is an Options.sourceFault or destFault.
func (f *faulty) fault(op, path string) error {
	if op == "open" {
		f.mu.Lock()
		f.opens[path]++
		f.mu.Unlock()
	}
	err := f.ask(op, path)
	if op == "read" && errors.Is(f.ask("flip", path), errFlip) {
		err = errors.Join(err, flip(path))
	}
	return err
}

var errFlip = errors.New("flip a bit")

// flip changes the first byte of a file.
func flip(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b := []byte{0}
	_, err = f.ReadAt(b, 0)
	b[0] ^= 1
	_, err2 := f.WriteAt(b, 0)
	return errors.Join(err, err2, f.Close())
}

// smallTree makes a tree of six files and a link, and returns its folder.
func smallTree(t *testing.T) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "src")
	mustDo(t, os.MkdirAll(filepath.Join(src, "sub", "empty"), 0o755))
	for i := range 5 {
		mustDo(t, os.WriteFile(filepath.Join(src, "sub", fmt.Sprint("file", i)),
			bytes.Repeat([]byte{byte(i)}, 1000*i), 0o644))
	}
	mustDo(t, os.WriteFile(filepath.Join(src, "large"), bytes.Repeat([]byte("large"), 5000), 0o644))
	mustDo(t, os.Symlink("large", filepath.Join(src, "link")))
	return src
}

// on returns a fault: err for op on paths that contain part, the first times times (0: always).
func on(op, part string, err error, times int) func(string, string) error {
	var mu sync.Mutex
	seen := 0
	return func(o, path string) error {
		mu.Lock()
		defer mu.Unlock()
		if o != op || !strings.Contains(path, part) || times > 0 && seen == times {
			return nil
		}
		seen++
		return err
	}
}

func nothing(string, string) error { return nil }

// noPartOf fails the test if a destination holds a temporary, or a file under its final name that
// is not the source's.
func noPartOf(t *testing.T, src, dest string) {
	t.Helper()
	want := describe(t, src)
	if _, err := os.Stat(dest); err != nil {
		return
	}
	for path, entry := range describe(t, dest) {
		if isOurs(path) && !strings.HasSuffix(path, tempSuffix) || strings.HasPrefix(entry, "folder") {
			continue
		}
		if want[path] != entry {
			t.Errorf("%q is\n%s, want\n%s", path, entry, want[path])
		}
	}
}

func TestFaultsOfOneFile(t *testing.T) {
	for _, test := range []struct {
		name, want string
		fault      func(op, path string) error
	}{
		{
			"storage's error", "cannot be read: open: permission denied",
			on("open", "file3", unix.EACCES, 0),
		},
		{
			"an error in the middle", "cannot be read: read: input/output error",
			on("read", "large", unix.EIO, 0),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			src, base := smallTree(t), t.TempDir()
			source := newFaulty(test.fault)
			reports, errs := stageAll(2, src, base, func(_ int, o *Options) {
				o.Mode, o.sourceFault = Replicate, source.fault
			})
			for rank := range 2 {
				mustDo(t, errs[rank])
				noPartOf(t, src, filepath.Join(base, fmt.Sprint(rank)))
			}
			r := reports[0]
			if r.Failed != 2 || r.Copied != 12 {
				t.Errorf("failed %d, copied %d of 14, want 2 failed", r.Failed, r.Copied)
			}
			if len(r.Failures) != 1 || !strings.Contains(r.Failures[0].Reason, test.want) {
				t.Errorf("failures %+v, want one with %q", r.Failures, test.want)
			}
			reports, errs = stageAll(2, src, base, func(_ int, o *Options) { o.Mode = Replicate })
			mustDo(t, errs[0])
			if r := reports[0]; r.Copied != 2 || r.Failed != 0 {
				t.Errorf("the next run copies %d and fails %d, want 2 and none", r.Copied, r.Failed)
			}
		})
	}
}

func TestFaultsOfADestination(t *testing.T) {
	for _, test := range []struct {
		name, want string
		fault      func(op, path string) error
	}{
		{"full", "stage: no space is left at", on("write", "1/", unix.ENOSPC, 0)},
		{"full for folders", "stage: no space is left at", on("mkdir", "1/sub", unix.ENOSPC, 0)},
		{"a write error", "write /", on("write", "tmp", unix.EIO, 1)},
		{"a disk that lies", "reads back with another checksum", on("flip", "tmp", errFlip, 1)},
		{"no rename", "file2: operation not permitted", on("rename", "file2", unix.EPERM, 0)},
		{"full for links", "stage: no space is left at", on("symlink", "1/", unix.ENOSPC, 0)},
		{"quota", "stage: the quota at", on("create", "", unix.EDQUOT, 0)},
		{"read-only", "is on a read-only file system: name a folder", on("create", "", unix.EROFS, 0)},
		{
			"no folder may be made", "cannot be written to: mkdir ",
			on("mkdir", "1", unix.EACCES, 0),
		},
		{"no sync", "input/output error", on("syncfs", "", unix.EIO, 0)},
	} {
		t.Run(test.name, func(t *testing.T) {
			src, base := smallTree(t), t.TempDir()
			target := newFaulty(func(op, path string) error {
				return test.fault(op, strings.TrimPrefix(path, base))
			})
			_, errs := stageAll(2, src, base, func(_ int, o *Options) {
				o.Mode, o.destFault = Replicate, target.fault
			})
			for rank, err := range errs {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("rank %d: %v, want %q", rank, err, test.want)
				}
				noPartOf(t, src, filepath.Join(base, fmt.Sprint(rank)))
			}
			_, errs = stageAll(2, src, base, func(_ int, o *Options) { o.Mode = Replicate })
			mustDo(t, errors.Join(errs...))
			checkSame(t, describe(t, src), describe(t, filepath.Join(base, "1")))
		})
	}
}

// TestFullAtTheLastFile checks that a destination that is full when the last file is written ends
// staging with that error, too.
func TestFullAtTheLastFile(t *testing.T) {
	for range 20 {
		src := t.TempDir()
		mustDo(t, os.WriteFile(filepath.Join(src, "file"), make([]byte, 1000), 0o644))
		target := newFaulty(on("write", "", unix.ENOSPC, 0))
		_, errs := stageAll(1, src, t.TempDir(), func(_ int, o *Options) { o.destFault = target.fault })
		if !errors.Is(errs[0], unix.ENOSPC) {
			t.Fatalf("staging ends with %v, want %v", errs[0], unix.ENOSPC)
		}
	}
}

// TestSourceChanges changes a file between planning and reading it, and while it is read.
func TestSourceChanges(t *testing.T) {
	change := map[string]func(path string) error{
		"shrinks": func(path string) error { return os.Truncate(path, 4096) },
		"grows": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("more")
				_ = f.Close()
			}
			return err
		},
		"is touched": func(path string) error {
			return os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0))
		},
		"is replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+"~", bytes.Repeat([]byte("other"), 5000), 0o644),
				os.Rename(path+"~", path))
		},
	}
	for what, do := range change {
		for _, op := range []string{"open", "read"} {
			t.Run(what+" before "+op, func(t *testing.T) {
				if what == "is replaced" && op == "read" {
					op = "open" // the open file stays whole, so what is read does not change
				}
				src, base := smallTree(t), t.TempDir()
				large, once := filepath.Join(src, "large"), sync.Once{}
				source := newFaulty(func(o, path string) (err error) {
					if o == op && path == large {
						once.Do(func() { err = do(large) })
					}
					return err
				})
				reports, errs := stageAll(2, src, base, func(_ int, o *Options) {
					o.Mode, o.sourceFault = Replicate, source.fault
				})
				mustDo(t, errs[0])
				r := reports[0]
				if r.Failed != 2 || len(r.Failures) != 1 ||
					!strings.Contains(r.Failures[0].Reason, "changed while the data set was staged") {
					t.Errorf("%+v, %+v", r, r.Failures)
				}
				for rank := range 2 {
					if _, err := os.Lstat(filepath.Join(base, fmt.Sprint(rank), "large")); err == nil {
						t.Errorf("rank %d has the file", rank)
					}
				}
			})
		}
	}
}

// TestReadOnce counts opens: a replication opens every file once, over all ranks.
func TestReadOnce(t *testing.T) {
	src := smallTree(t)
	source := newFaulty(nothing)
	_, errs := stageAll(4, src, t.TempDir(), func(_ int, o *Options) {
		o.Mode, o.sourceFault = Replicate, source.fault
	})
	mustDo(t, errs[0])
	if len(source.opens) != 6 {
		t.Errorf("%d files were opened, want 6", len(source.opens))
	}
	for path, n := range source.opens {
		if n != 1 {
			t.Errorf("%s was opened %d times", path, n)
		}
	}
}

// TestTooSmall stages more than fits.
func TestTooSmall(t *testing.T) {
	_, errs := stageAll(1, smallTree(t), t.TempDir(), func(_ int, o *Options) {
		plan := o.Plan
		o.Plan = func(ctx context.Context) (*Plan, error) {
			p, err := plan(ctx)
			p.Items[1].Size = 1 << 60
			return p, err
		}
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "bytes, but 1152921504606856976 are to") {
		t.Error(errs[0])
	}
}

// TestDamagedJournal ends a journal in the middle of a line, as a kill does.
func TestDamagedJournal(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	mustDo(t, os.WriteFile(filepath.Join(src, "new\nline \xff"), []byte("odd"), 0o644))
	copied := func(want int64) {
		t.Helper()
		reports, errs := stageAll(2, src, base, func(_ int, o *Options) { o.Mode = Replicate })
		mustDo(t, errs[0])
		if r := reports[0]; r.Copied != want || r.Failed != 0 {
			t.Errorf("copied %d, want %d; failed %d", r.Copied, want, r.Failed)
		}
	}
	copied(16)
	copied(0)
	f, err := os.OpenFile(filepath.Join(base, "1", ".rankpool-1.journal"), os.O_APPEND|os.O_WRONLY, 0)
	mustDo(t, err)
	_, err = f.WriteString("0123456789abcdef 1 5")
	mustDo(t, err)
	mustDo(t, f.Close())
	mustDo(t, os.WriteFile(filepath.Join(src, "large"), []byte("smaller"), 0o644))
	copied(2)
	copied(0)
}

// TestSecondRunCopiesWhatIsMissingOrChanged changes either end between two runs.
func TestSecondRunCopiesWhatIsMissingOrChanged(t *testing.T) {
	for _, test := range []struct {
		name     string
		do       func(src, dest string) error
		checksum bool
		want     int64
	}{
		{"nothing", func(string, string) error { return nil }, false, 0},
		{"a copy is gone", func(_, dest string) error { return os.Remove(dest + "/large") }, false, 1},
		{"a link is another", func(_, dest string) error {
			return errors.Join(os.Remove(dest+"/link"), os.Symlink("x", dest+"/link"))
		}, false, 1},
		{"the source is changed", func(src, _ string) error {
			return os.WriteFile(src+"/large", []byte("x"), 0o644)
		}, false, 2},
		{"a copy is changed", func(_, dest string) error {
			return os.WriteFile(dest+"/large", []byte("x"), 0o644)
		}, false, 1},
		{"a copy is another file", func(_, dest string) error {
			return errors.Join(os.Remove(dest+"/large"), os.WriteFile(dest+"/large", []byte("x"), 0o644))
		}, false, 1},
		{"a copy is damaged in silence", damage, true, 1},
		{"a copy is damaged, and nobody looks", damage, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			src, base := smallTree(t), t.TempDir()
			_, errs := stageAll(2, src, base, func(_ int, o *Options) { o.Mode = Replicate })
			mustDo(t, errs[0])
			mustDo(t, test.do(src, filepath.Join(base, "1")))
			source := newFaulty(nothing)
			reports, errs := stageAll(2, src, base, func(_ int, o *Options) {
				o.Mode, o.Checksum, o.sourceFault = Replicate, test.checksum, source.fault
			})
			mustDo(t, errs[0])
			if r := reports[0]; r.Copied != test.want || r.Failed != 0 || len(source.opens) > 1 {
				t.Errorf("copied %d, want %d; failed %d; opened %v", r.Copied, test.want, r.Failed,
					source.opens)
			}
			if test.want > 0 {
				checkSame(t, describe(t, src), describe(t, filepath.Join(base, "1")))
			}
		})
	}
}

// damage flips a byte of a copy and keeps its time.
func damage(_, dest string) error {
	info, err := os.Stat(dest + "/large")
	if err != nil {
		return err
	}
	return errors.Join(flip(dest+"/large"),
		os.Chtimes(dest+"/large", info.ModTime(), info.ModTime()))
}

// TestSharedReplica checks that two replicas are not written into one folder.
func TestSharedReplica(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	_, errs := stageAll(2, src, base, func(_ int, o *Options) {
		o.Mode, o.Dest = Replicate, filepath.Join(base, "all")
	})
	for rank, err := range errs {
		// its own error, or that of the other, which came first
		if err == nil || !strings.Contains(err.Error(), " writes to "+filepath.Join(base, "all")) ||
			!strings.Contains(err.Error(), "give every rank its own folder with {rank} or "+
				"{host} in --dest") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	for path, entry := range describe(t, filepath.Join(base, "all")) {
		if !strings.HasPrefix(entry, "folder") && !isOurs(path) {
			t.Errorf("%q is left", path)
		}
	}
}

// TestDeadRank silences a rank in mid-stage: the others end with an error that names it, and do not
// report it again.
func TestDeadRank(t *testing.T) {
	for dead := range 3 {
		t.Run(fmt.Sprint("rank ", dead), func(t *testing.T) {
			src, base := smallTree(t), t.TempDir()
			group := newMemory(3)
			ticks := make([]chan time.Time, 3)
			stop := make(chan struct{})
			var beating sync.WaitGroup
			for rank := range ticks {
				ticks[rank] = make(chan time.Time)
			}
			beat := sync.OnceFunc(func() { // from the death on, the ranks' clocks run in step
				beating.Go(func() {
					for {
						for rank := range ticks {
							select {
							case ticks[rank] <- time.Time{}:
							case <-stop:
								return
							}
						}
						for _, m := range group { // wait until all that was sent has arrived
							there := make(chan struct{})
							m.Put(m.Rank(), 0, nil, func(error) {})
							m.Take(m.Rank(), 0, nil, func(error) { close(there) })
							<-there
						}
					}
				})
			})
			errs := make([]error, 3)
			ctx, cancel := context.WithCancel(t.Context())
			var alive, all sync.WaitGroup
			for rank, peer := range group {
				target := newFaulty(func(op, _ string) error {
					if op == "rename" && rank == dead {
						peer.Silence()
						beat()
					}
					return nil
				})
				one := func() {
					_, errs[rank] = Run(ctx, peer, Options{
						Plan: func(ctx context.Context) (*Plan, error) {
							return Walk(ctx, src, nil)
						},
						Dest: filepath.Join(base, fmt.Sprint(rank)), Mode: Replicate, ChunkBytes: 4096, Buffers: 1,
						Readers: 1, Writers: 1,
						destFault: target.fault, Ticks: ticks[rank], PeerTicks: 5,
					})
					go func() { // a rank that has ended reads no ticks
						for {
							select {
							case <-ticks[rank]:
							case <-stop:
								return
							}
						}
					}()
				}
				if rank == dead {
					all.Go(one)
				} else {
					alive.Go(one)
				}
			}
			alive.Wait()
			cancel()
			all.Wait()
			close(stop)
			beating.Wait()
			for rank, err := range errs {
				want := fmt.Sprintf("rank %d has been silent for 5 s and is assumed dead", dead)
				if rank != dead && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("rank %d: %v, want %q", rank, err, want)
				}
				noPartOf(t, src, filepath.Join(base, fmt.Sprint(rank)))
			}
		})
	}
}

// TestToldToEnd cancels all ranks from outside in mid-stage: each returns the cause, and leaves no
// temporary.
func TestToldToEnd(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	told := errors.New("told to end")
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	errs := make([]error, 3)
	var all sync.WaitGroup
	for rank, peers := range newMemory(3) {
		target := newFaulty(func(op, _ string) error {
			if op == "write" {
				end(told)
			}
			return nil
		})
		all.Go(func() {
			_, errs[rank] = Run(ctx, peers, Options{
				Plan: func(ctx context.Context) (*Plan, error) {
					return Walk(ctx, src, nil)
				},
				Dest: filepath.Join(base, strconv.Itoa(rank)), Mode: Replicate, ChunkBytes: 4096,
				destFault: target.fault,
			})
		})
	}
	all.Wait()
	for rank, err := range errs {
		if !errors.Is(err, told) {
			t.Errorf("rank %d: %v", rank, err)
		}
		noPartOf(t, src, filepath.Join(base, strconv.Itoa(rank)))
	}
}
