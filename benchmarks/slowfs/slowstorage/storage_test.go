package slowstorage

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"rankpool/benchmarks/slowfs"
	"rankpool/staging/storage"
)

// manualClock is a clock for one goroutine: sleeping advances it.
type manualClock struct{ now time.Time }

func (c *manualClock) Now() time.Time        { return c.now }
func (c *manualClock) Sleep(d time.Duration) { c.now = c.now.Add(d) }

func TestAccessesTakeTheirTimeByTheGivenClock(t *testing.T) {
	clock := &manualClock{}
	s := New(Memory{"/data/a": make([]byte, 1000)}, "/data", slowfs.Config{
		OpenLatency: 2 * time.Millisecond, ReadLatency: time.Millisecond,
		StatLatency: 3 * time.Millisecond, Bandwidth: 1e6,
	}, clock)
	began := clock.now
	at := func(want time.Duration, what string) {
		t.Helper()
		if got := clock.now.Sub(began); got != want {
			t.Errorf("after %s it is %v, want %v", what, got, want)
		}
	}
	f, err := s.Open("/data/a")
	if err != nil {
		t.Fatal(err)
	}
	at(2*time.Millisecond, "open")
	p := make([]byte, 600)
	if n, err := f.ReadAt(p, 0); n != 600 || err != nil {
		t.Fatal(n, err)
	}
	at(2*time.Millisecond+600*time.Microsecond+time.Millisecond, "600 bytes at 1 MB/s")
	if n, err := f.ReadAt(p, 600); n != 400 || err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(n, err)
	}
	at(5*time.Millisecond, "400 bytes")
	if n, err := f.ReadAt(p, 1000); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatal(n, err)
	}
	at(5*time.Millisecond, "the end of the file, which is free")
	if size, _, err := f.Stat(); size != 1000 || err != nil {
		t.Fatal(size, err)
	}
	at(8*time.Millisecond, "stat")
	want := slowfs.FileStats{Opens: 1, Reads: 2, Bytes: 1000}
	if got := s.Stats().Files["a"]; got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	s.ResetStats()
	if got := s.Stats(); got.Opens != 0 || len(got.Files) != 0 {
		t.Errorf("after ResetStats: %+v", got)
	}
}

func TestErrorsAreSystemErrors(t *testing.T) {
	s := New(Memory{"/a": {1}, "/b": {1}}, "", slowfs.Config{Rules: []slowfs.Rule{
		{Match: "a", Op: slowfs.Open, Error: "ESTALE", Times: 1},
		{Match: "a", Op: slowfs.Read, Error: "EIO", Nth: 2},
		{Match: "a", Op: slowfs.Stat, Error: "ENOENT"},
	}}, &manualClock{})
	if _, err := s.Open("/a"); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("first open: %v", err)
	}
	f, err := s.Open("/a")
	if err != nil {
		t.Fatal(err)
	}
	p := []byte{0}
	if n, err := f.ReadAt(p, 0); n != 1 || err != nil {
		t.Errorf("first read: %d, %v", n, err)
	}
	if n, err := f.ReadAt(p, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("second read: %d, %v", n, err)
	}
	if _, _, err := f.Stat(); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("stat: %v", err)
	}
	if _, err := s.Open("/c"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestManyReadersFillTheBandwidth reads with 16 goroutines in virtual time: 100 files of 10,000
// bytes at 1 MB/s take a second, though each open takes 10 ms.
func TestManyReadersFillTheBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := make(Memory)
		work := make(chan string, 100)
		for i := range 100 {
			path := "/" + string(rune('a'+i%10)) + string(rune('a'+i/10))
			files[path] = bytes.Repeat([]byte{byte(i)}, 10_000)
			work <- path
		}
		close(work)
		s := New(files, "", slowfs.Config{OpenLatency: 10 * time.Millisecond, Bandwidth: 1e6}, nil)
		began := time.Now()
		done := make(chan error)
		for range 16 {
			go func() { done <- readAll(s, files, work) }()
		}
		for range 16 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		// The first byte waits for an open; from then on the pipe is full.
		if took := time.Since(began); took != 1010*time.Millisecond {
			t.Errorf("took %v, want 1.01 s", took)
		}
		if twice := s.Stats().ReadTwice(); twice != nil {
			t.Errorf("read twice: %q", twice)
		}
	})
}

func readAll(s *Storage, files Memory, work chan string) error {
	p := make([]byte, 10_000)
	for path := range work {
		f, err := s.Open(path)
		if err != nil {
			return err
		}
		if n, err := f.ReadAt(p, 0); n != len(p) {
			return err
		}
		if !slices.Equal(p, files[path]) {
			return errors.New(path + " has other bytes")
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Storage = Memory(nil)
)
