package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// A fault is what happens to one try to read a file; the zero fault is none.
type fault struct {
	open, read, stat error
	cut              int // so many bytes at the end are missing, though Stat returns the whole size
	grown            int64
	newer            int64
	piece            int // reads return at most so many bytes
}

// A faultyStorage is a Storage in memory with one fault per try; when its list is used up there are
// no more. Its methods are safe for concurrent use.
type faultyStorage struct {
	mu     sync.Mutex
	m      *dataset.Manifest
	faults map[string][]fault
	opened []string      // in order
	at     []time.Time   // when
	gate   chan struct{} // if not nil, Open waits for it
	forgot int64
}

func (s *faultyStorage) Open(path string) (File, error) {
	s.mu.Lock()
	s.opened = append(s.opened, path)
	s.at = append(s.at, time.Now())
	var f fault
	if list := s.faults[path]; len(list) > 0 {
		f, s.faults[path] = list[0], list[1:]
	}
	s.mu.Unlock()
	if s.gate != nil {
		<-s.gate
	}
	if f.open != nil {
		return nil, f.open
	}
	return &faultyFile{s, f, path}, nil
}

type faultyFile struct {
	s *faultyStorage
	fault
	path string
}

// content is what a file of the faulty storage holds.
func content(path string) []byte { return []byte("content of " + path) }

func (f *faultyFile) ReadVector(into [][]byte, off int64) (int, error) {
	if f.read != nil {
		return 0, f.read
	}
	data := content(f.path)
	data = data[:len(data)-f.cut]
	if off >= int64(len(data)) {
		return 0, io.EOF
	}
	p := into[0]
	if f.piece > 0 {
		p = p[:min(f.piece, len(p))]
	}
	return copy(p, data[off:]), nil
}

func (f *faultyFile) Stat() (int64, int64, error) {
	return int64(len(content(f.path))) + f.grown, 7 + f.newer, f.stat
}

func (f *faultyFile) Forget(off, length int64) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.s.forgot += length
}

func (f *faultyFile) Close() error { return nil }

// faulty returns a storage of n samples c/0 … c/n-1 and their manifest.
func faulty(n int) *faultyStorage {
	var samples []dataset.Sample
	for i := range n {
		path := fmt.Sprint("c/", i)
		samples = append(samples, dataset.Sample{
			Path: path, Size: int64(len(content("/faulty/" + path))), ModTime: 7,
		})
	}
	m := built("/faulty", samples...)
	return &faultyStorage{m: m, faults: map[string][]fault{}}
}

// sampleCounts returns the counts of samples in stats.
func sampleCounts(stats Stats) Stats {
	return Stats{
		Reads: stats.Reads, Bytes: stats.Bytes, Retries: stats.Retries, Errors: stats.Errors,
	}
}

// fetch reads one sample with a Fetcher of its own, and returns the bytes, the error and the
// counters.
func fetch(s *faultyStorage, id draw.SampleID, opt FetchOptions) (
	into []byte, stats Stats, err error,
) {
	opt.Storage = s
	f := NewFetcher(s.m, opt)
	defer f.Close()
	into = make([]byte, s.m.Size(id))
	done := make(chan error)
	f.Fetch(id, into, 0, func(err error) { done <- err })
	err = <-done
	return into, f.Stats(), err
}

func TestFetchFaults(t *testing.T) {
	sys := func(op string, number unix.Errno) error { return os.NewSyscallError(op, number) }
	again := func(n int, f fault) []fault { return slices.Repeat([]fault{f}, n) }
	for _, c := range []struct {
		name    string
		faults  []fault
		retries int64
		want    string // of the error; "" for none
		is      error
	}{
		{"none", nil, 0, "", nil},
		{"small pieces", []fault{{piece: 3}}, 0, "", nil},
		{"EIO four times", again(4, fault{read: sys("read", unix.EIO)}), 4, "", nil},
		{
			"EIO forever", again(99, fault{read: sys("read", unix.EIO)}), 4,
			"cannot be read: read: input/output error (tried 5 times)", unix.EIO,
		},
		{"ESTALE then well", []fault{{open: sys("open", unix.ESTALE)}}, 1, "", nil},
		{
			"all that may pass",
			[]fault{{open: unix.EINTR}, {read: unix.EAGAIN}, {stat: unix.ESTALE}, {read: unix.ETIMEDOUT}},
			4, "", nil,
		},
		{"short reads that pass", again(2, fault{cut: 3}), 2, "", nil},
		{
			"short reads forever", again(99, fault{cut: 3}), 4, "ends after 19 of 22 bytes (tried 5 times)",
			io.ErrUnexpectedEOF,
		},
		{
			"vanished",
			[]fault{{open: sys("open", unix.ENOENT)}},
			0, "is missing; index the data set again",
			fs.ErrNotExist,
		},
		{
			"forbidden",
			[]fault{{open: sys("open", unix.EACCES)}},
			0,
			"cannot be read: open: permission denied", fs.ErrPermission,
		},
		{
			"shrunk",
			[]fault{{cut: 5, grown: -5}},
			0,
			"has 17 bytes, the manifest says 22; index the data set again", nil,
		},
		{
			"grown",
			[]fault{{grown: 1}},
			0, "has 23 bytes, the manifest says 22; index the data set again",
			nil,
		},
		{
			"changed",
			[]fault{{newer: 1}},
			0,
			"was modified at 1970-01-01T00:00:00.000000008Z, the manifest says " +
				"1970-01-01T00:00:00.000000007Z; index", nil,
		},
		{
			"changed after an error that passed",
			[]fault{{read: unix.EIO}, {newer: 1}},
			1,
			"was modified at 1970-01-01T00:00:00.000000008Z, the manifest says " +
				"1970-01-01T00:00:00.000000007Z" +
				"; index the data set again (tried 2 times)", nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := faulty(20)
				s.faults["/faulty/c/7"] = c.faults
				into, stats, err := fetch(s, 7, FetchOptions{})
				want := Stats{Reads: 1, Bytes: 22, Retries: c.retries}
				if c.want != "" {
					want = Stats{Errors: 1, Retries: c.retries}
				}
				if sampleCounts(stats) != want {
					t.Errorf("counters %+v, want %+v", stats, want)
				}
				if c.want == "" {
					if err != nil || !bytes.Equal(into, content("/faulty/c/7")) || s.forgot != 22 {
						t.Errorf("%q, %v, %d bytes forgotten", into, err, s.forgot)
					}
					return
				}
				stagingtest.WantError(t, err, "staging: sample 7 (c/7): "+c.want)
				var sample *SampleError
				if !errors.As(err, &sample) || sample.ID != 7 || sample.Path != "c/7" ||
					c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("error %#v", err)
				}
			})
		})
	}
}

// TestFetchDelays reads the clock of the synctest bubble, which only advances when everybody waits.
func TestFetchDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulty(1)
		s.faults["/faulty/c/0"] = slices.Repeat([]fault{{read: unix.EIO}}, 99)
		_, _, err := fetch(s, 0, FetchOptions{})
		if !errors.Is(err, unix.EIO) {
			t.Error(err)
		}
		var waits []time.Duration
		for i := range s.at[1:] {
			waits = append(waits, s.at[i+1].Sub(s.at[i])/time.Millisecond)
		}
		if want := []time.Duration{20, 80, 320, 1280}; !slices.Equal(waits, want) {
			t.Errorf("waits %d ms, want %d ms", waits, want)
		}
	})
}

// asking is a Fetcher with one reader that is held up in its first read, so that the queue can be
// filled.
type asking struct {
	*Fetcher
	s       *faultyStorage
	pending sync.WaitGroup
	mu      sync.Mutex
	errs    map[draw.SampleID][]error
}

func newAsking(n int) *asking {
	a := &asking{s: faulty(n), errs: map[draw.SampleID][]error{}}
	a.s.gate = make(chan struct{})
	a.Fetcher = NewFetcher(a.s.m, FetchOptions{Concurrency: 1, Storage: a.s})
	a.ask(0, 0)
	synctest.Wait()
	return a
}

func (a *asking) ask(id draw.SampleID, need uint64) {
	a.pending.Add(1)
	a.Fetch(id, make([]byte, a.s.m.Size(id)), need, func(err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.errs[id] = append(a.errs[id], err)
		a.pending.Done()
	})
}

// order lets everything continue, and returns the files in the order in which they were opened.
func (a *asking) order(t *testing.T) (names []string) {
	close(a.s.gate)
	a.pending.Wait()
	a.Close()
	for id, errs := range a.errs {
		for _, err := range errs {
			if err != nil {
				t.Errorf("sample %d: %v", id, err)
			}
		}
	}
	for _, path := range a.s.opened {
		names = append(names, filepath.Base(path))
	}
	return names
}

func TestFetchOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(100)
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(99) {
			a.ask(draw.SampleID(i+1), uint64(i/3)) // three of equal need
		}
		got := a.order(t)
		for i := range 33 {
			group := slices.Sorted(slices.Values(got[1+3*i : 4+3*i]))
			expect := []string{fmt.Sprint(3*i + 1), fmt.Sprint(3*i + 2), fmt.Sprint(3*i + 3)}
			slices.Sort(expect)
			if !slices.Equal(group, expect) {
				t.Fatalf("reads %d to %d were of %q, want %q", 1+3*i, 4+3*i, group, expect)
			}
		}
	})
}

func TestFetchEqualNeedInOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(6)
		for _, id := range []draw.SampleID{4, 2, 5, 1, 3} {
			a.ask(id, 9)
		}
		if got, want := a.order(t), []string{"0", "4", "2", "5", "1", "3"}; !slices.Equal(got, want) {
			t.Errorf("order %q, want %q", got, want)
		}
	})
}

// TestRetryHoldsUpNobody has one reader: while a read waits for its next try, the others are read.
func TestRetryHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(4)
		a.s.faults["/faulty/c/1"] = []fault{{read: unix.EIO}}
		for id := draw.SampleID(1); id < 4; id++ {
			a.ask(id, uint64(id))
		}
		if got, want := a.order(t), []string{"0", "1", "2", "3", "1"}; !slices.Equal(got, want) {
			t.Errorf("order %q, want %q", got, want)
		}
	})
}

func TestFetchClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(5)
		a.s.faults["/faulty/c/1"] = []fault{{read: unix.EIO}}
		a.s.faults["/faulty/c/2"] = []fault{{read: unix.EIO}}
		a.ask(1, 1)
		a.s.gate <- struct{}{} // sample 0 is read
		a.s.gate <- struct{}{} // sample 1 fails and waits
		synctest.Wait()
		a.ask(2, 2) // under way, held up
		synctest.Wait()
		a.ask(3, 3) // queued
		closed := make(chan struct{})
		go func() { a.Close(); close(closed) }()
		synctest.Wait()
		close(a.s.gate)
		<-closed // though sample 2 has failed, and would have been tried again
		a.ask(4, 4)
		synctest.Wait()
		a.Close()
		for id, want := range []error{nil, ErrClosed, unix.EIO, ErrClosed, ErrClosed} {
			if got := a.errs[draw.SampleID(id)]; len(got) != 1 || !errors.Is(got[0], want) {
				t.Errorf("sample %d: %v, want %v", id, got, want)
			}
		}
		want := Stats{Reads: 1, Bytes: 22, Retries: 1, Errors: 1}
		if stats := sampleCounts(a.Stats()); stats != want {
			t.Errorf("counters %+v", stats)
		}
	})
}

func TestFetchMisuse(t *testing.T) {
	f := NewFetcher(faulty(3).m, FetchOptions{})
	defer f.Close()
	for _, misuse := range []func(){
		func() { f.Fetch(3, nil, 0, nil) },
		func() { f.Fetch(1, make([]byte, 2), 0, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse()
		}()
	}
}

// TestFetchFiles reads real files, whole and in parts, into one slab, requested by many goroutines.
func TestFetchFiles(t *testing.T) {
	var entries []string
	for i := range 200 {
		entries = append(entries, fmt.Sprintf("c%d/%d", i%7, i*i))
	}
	m := filesOf(t, stagingtest.Tree(t, entries...), entries...)
	whole := func(id draw.SampleID) string { return m.RelPath(id) }
	fetchAll(t, m, whole)
	var parts []dataset.Sample
	for id := range m.Len() {
		part := m.Sample(draw.SampleID(id))
		part.Format, part.Offset, part.Size = dataset.FormatPart, 1, part.Size-2
		parts = append(parts, part)
	}
	fetchAll(t, built(m.Root(), parts...), func(id draw.SampleID) string {
		path := whole(id)
		return path[1 : len(path)-1]
	})
}

func fetchAll(t *testing.T, m *dataset.Manifest, want func(draw.SampleID) string) {
	t.Helper()
	f := NewFetcher(m, FetchOptions{})
	defer f.Close()
	slab := make([]byte, m.TotalBytes())
	var group sync.WaitGroup
	var at int64
	for id := range draw.SampleID(m.Len()) {
		into := slab[at : at+m.Size(id) : at+m.Size(id)]
		at += m.Size(id)
		group.Add(1)
		go f.Fetch(id, into, uint64(id), func(err error) {
			defer group.Done()
			if err != nil || string(into) != want(id) {
				t.Errorf("sample %d is %q, %v, want %q", id, into, err, want(id))
			}
		})
	}
	group.Wait()
	counts := Stats{Reads: int64(m.Len()), Bytes: m.TotalBytes()}
	if got := sampleCounts(f.Stats()); got != counts {
		t.Errorf("counters %+v, want %+v", got, counts)
	}
}

// TestFetchChangedFiles changes real files after the scan.
func TestFetchChangedFiles(t *testing.T) {
	files := []string{"a/0", "a/1", "a/2", "a/3", "a/4"}
	root := stagingtest.Tree(t, files...)
	m := filesOf(t, root, files...)
	stagingtest.Must(t, os.Remove(filepath.Join(root, "a/0")))
	stagingtest.Must(t, os.WriteFile(filepath.Join(root, "a/1"), []byte("a"), 0o644))
	stagingtest.Must(t, os.Remove(filepath.Join(root, "a/2")))
	// it has no writer: a blocking open would not return
	stagingtest.Must(t, unix.Mkfifo(filepath.Join(root, "a/2"), 0o644))
	stagingtest.Must(t, os.WriteFile(filepath.Join(root, "a/3"), []byte("a/X"), 0o644))
	f := NewFetcher(m, FetchOptions{})
	defer f.Close()
	for id, want := range []string{
		"is missing", "has 1 bytes, the manifest says 3", "cannot be read",
		"was modified at", "",
	} {
		done := make(chan error)
		f.Fetch(draw.SampleID(id), make([]byte, 3), 0, func(err error) { done <- err })
		switch err := <-done; {
		case want != "":
			stagingtest.WantError(t, err, fmt.Sprintf("staging: sample %d (a/%d): %s", id, id, want))
		case err != nil:
			t.Error(err)
		}
	}
}
