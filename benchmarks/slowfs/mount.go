package slowfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// accesses is how many at a time are answered when they are due.
const accesses = 64

// maxRead is the kernel's largest read, 1 MiB, the most that FUSE supports.
const maxRead = 1 << 20

// A Server is a mounted file system. Its methods are safe for concurrent use.
type Server struct {
	engine  *Engine
	source  string
	dir     string
	config  Config
	began   time.Time
	fuse    *fuse.Server
	closing chan struct{}
	close   func() error
}

// Mount shows the folder source, read-only, at the folder dir until the Server is closed. Accesses
// from this process work, but a test that leaves files open must close them before it closes the
// Server. It fails if config.Check does, if source cannot be read, and if the system has no FUSE or
// does not allow mounting.
func Mount(source, dir string, config Config) (*Server, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return nil, fmt.Errorf("slowfs: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("slowfs: %w", err)
	}
	root, err := fs.NewLoopbackRoot(source)
	if err != nil {
		return nil, fmt.Errorf("slowfs: %s: %w", source, err)
	}
	s := &Server{
		engine: NewEngine(config), source: source, dir: dir, config: config, began: time.Now(),
		closing: make(chan struct{}),
	}
	s.close = sync.OnceValue(s.unmount)
	// Accesses wait in system calls. Without a place for each, Go's runtime hands places over, and
	// 32 accesses of 1 ms at a time took 2 ms each on two processors.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), accesses))
	// NewLoopbackRoot's documentation says so.
	loopback := root.(*fs.LoopbackNode)
	top := &node{source: loopback, server: s}
	loopback.RootData.RootNode = top
	if s.fuse, err = fs.Mount(dir, top, s.options()); err != nil {
		return nil, fmt.Errorf("slowfs: mount at %s (this needs /dev/fuse, and root or fusermount3): %w",
			dir, err)
	}
	return s, nil
}

func (s *Server) options() *fs.Options {
	forgotten := time.Duration(0)
	return &fs.Options{
		EntryTimeout: &s.config.EntryTimeout, AttrTimeout: &s.config.AttrTimeout,
		NegativeTimeout: &forgotten,
		NullPermissions: true,
		MountOptions: fuse.MountOptions{
			FsName: "slowfs", Name: "slowfs",
			DirectMount: true, Options: []string{"ro"},
			MaxWrite: maxRead, MaxReadAhead: maxRead,
			// With it, listing a folder would stat each of its files, one after the other.
			DisableReadDirPlus: true,
		},
	}
}

// Dir returns the absolute path at which the file system is mounted.
func (s *Server) Dir() string { return s.dir }

// Stats returns the counts so far.
func (s *Server) Stats() Stats { return s.engine.Stats() }

// ResetStats sets all counts to 0.
func (s *Server) ResetStats() { s.engine.ResetStats() }

// Wait returns when the file system is no longer mounted.
func (s *Server) Wait() { s.fuse.Wait() }

// Close unmounts the file system. Accesses that wait are answered at once, with EIO. If files are
// still open, or the file system is some process's current folder, Close unmounts it anyway, and
// returns an error that wraps EBUSY. Closing again does nothing and returns the same.
func (s *Server) Close() error { return s.close() }

func (s *Server) unmount() error {
	close(s.closing)
	// Force the unmount if no file is open: a mount namespace that was created meanwhile has a copy of
	// the mount, which would keep it alive. MNT_EXPIRE returns EAGAIN if no file is open.
	if errors.Is(unix.Unmount(s.dir, unix.MNT_EXPIRE), unix.EAGAIN) &&
		unix.Unmount(s.dir, unix.MNT_FORCE) == nil {
		s.fuse.Wait()
		return nil
	}
	busy := s.fuse.Unmount()
	if busy == nil {
		return nil
	}
	// MNT_FORCE fails what is under way; MNT_DETACH takes the mount out of the tree.
	forced := unix.Unmount(s.dir, unix.MNT_FORCE|unix.MNT_DETACH)
	if errors.Is(forced, unix.EBUSY) {
		forced = unix.Unmount(s.dir, unix.MNT_DETACH)
	}
	if forced != nil {
		return fmt.Errorf("slowfs: %s cannot be unmounted: %w", s.dir, forced)
	}
	return fmt.Errorf("slowfs: %s was unmounted while in use: %w", s.dir, unix.EBUSY)
}

// timerGrain is how late Go's timers are on an idle machine: the runtime waits whole milliseconds.
// Shorter waits sleep in the kernel.
const timerGrain = time.Millisecond

// now returns the engine's time.
func (s *Server) now() time.Duration { return time.Since(s.began) }

// wait sleeps until an access is to be answered, and returns how it fails. An interrupt does not
// end it: storage does not forget a request because the client got a signal, and Go programs get
// many.
func (s *Server) wait(v Verdict) error {
	if left := v.Due - s.now(); left > 2*timerGrain {
		timer := time.NewTimer(left - timerGrain)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.closing:
			return unix.EIO
		}
	}
	if left := v.Due - s.now(); left > 0 {
		rest := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&rest, nil) // A signal may end it a little early.
	}
	if v.Err != 0 {
		return v.Err
	}
	return nil
}
