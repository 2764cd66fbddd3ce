// Package slowstorage is package slowfs without a file system: a storage.Storage over another one,
// with the same model, rules and counters, and with a clock that tests may replace.
package slowstorage

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"rankpool/benchmarks/slowfs"
	"rankpool/staging/storage"
)

// Clock is the clock of a Storage. It is safe for concurrent use.
type Clock interface {
	// Now returns the time.
	Now() time.Time
	// Sleep returns when d has passed.
	Sleep(d time.Duration)
}

// SystemClock is the machine's clock. Inside a testing/synctest bubble it is the bubble's, so that
// nothing really waits.
type SystemClock struct{}

// Now is time.Now.
func (SystemClock) Now() time.Time { return time.Now() }

// Sleep is time.Sleep.
func (SystemClock) Sleep(d time.Duration) { time.Sleep(d) }

// Storage is storage that is slow and fails as configured. It is safe for concurrent
// use if the one below is.
type Storage struct {
	engine *slowfs.Engine
	below  storage.Storage
	root   string
	clock  Clock
	began  time.Time
}

// New returns a Storage over below. Rules and counters see paths without the folder root; "" leaves
// absolute paths as they are, less the first slash. A nil clock is SystemClock. It panics if
// config.Check fails.
func New(below storage.Storage, root string, config slowfs.Config, clock Clock) *Storage {
	if clock == nil {
		clock = SystemClock{}
	}
	return &Storage{
		engine: slowfs.NewEngine(config), below: below, root: root, clock: clock,
		began: clock.Now(),
	}
}

// Stats returns the counts so far.
func (s *Storage) Stats() slowfs.Stats { return s.engine.Stats() }

// ResetStats sets all counts to 0.
func (s *Storage) ResetStats() { s.engine.ResetStats() }

// Open opens the file at path, when its time has come.
func (s *Storage) Open(path string) (storage.File, error) {
	name := strings.TrimPrefix(strings.TrimPrefix(path, s.root), "/")
	if err := s.wait("open", s.engine.Open(s.now(), name)); err != nil {
		return nil, err
	}
	below, err := s.below.Open(path)
	if err != nil {
		return nil, err
	}
	return &file{File: below, storage: s, name: name}, nil
}

func (s *Storage) now() time.Duration { return s.clock.Now().Sub(s.began) }

// wait sleeps until an access is to be answered, and returns how it fails.
func (s *Storage) wait(call string, v slowfs.Verdict) error {
	if left := v.Due - s.now(); left > 0 {
		s.clock.Sleep(left)
	}
	if v.Err != 0 {
		return os.NewSyscallError(call, v.Err)
	}
	return nil
}

// file is an open file. Calls that it does not slow down go to the one below.
type file struct {
	storage.File
	storage *Storage
	name    string
}

// ReadAt reads, and answers when its time has come.
func (f *file) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, err
	}
	if failed := f.storage.wait("read", f.storage.engine.Read(
		f.storage.now(), f.name, offset, int64(n))); failed != nil {
		return 0, failed
	}
	return n, err
}

// Stat returns size and modification time, when their time has come.
func (f *file) Stat() (sizeBytes, modTime int64, err error) {
	if err := f.storage.wait("stat", f.storage.engine.Stat(f.storage.now(), f.name)); err != nil {
		return 0, 0, err
	}
	return f.File.Stat()
}

// Memory is storage in memory: the contents of files by absolute path, all modified at time 0. It
// must not change while it is read.
type Memory map[string][]byte

// Open opens a file. It fails with ENOENT if there is none.
func (m Memory) Open(path string) (storage.File, error) {
	content, ok := m[path]
	if !ok {
		return nil, os.NewSyscallError("open", syscall.ENOENT)
	}
	return memoryFile{bytes.NewReader(content)}, nil
}

type memoryFile struct{ *bytes.Reader }

// Stat returns the size, and modification time 0.
func (f memoryFile) Stat() (sizeBytes, modTime int64, err error) { return f.Size(), 0, nil }

// Forget does nothing.
func (memoryFile) Forget(int64, int64) {}

// Close does nothing.
func (memoryFile) Close() error { return nil }
