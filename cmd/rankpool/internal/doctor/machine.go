package doctor

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/layout"
)

// system is the Machine of this process.
type system struct {
	mu        sync.Mutex
	manifests map[string]*dataset.Manifest // already read, by path
}

// NewSystem returns the Machine of this process.
func NewSystem() Machine { return &system{manifests: map[string]*dataset.Manifest{}} }

// manifest reads a manifest, once: one with millions of samples takes seconds.
func (s *system) manifest(path string) (*dataset.Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.manifests[path]; m != nil {
		return m, nil
	}
	m, err := dataset.ReadParquet(path)
	if err == nil {
		s.manifests[path] = m
	}
	return m, err
}

func (*system) LookupEnv(name string) (string, bool)  { return os.LookupEnv(name) }
func (*system) ReadFile(path string) ([]byte, error)  { return os.ReadFile(path) }
func (*system) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }
func (*system) UserID() int                           { return os.Geteuid() }
func (*system) LookPath(name string) (string, error)  { return exec.LookPath(name) }

func (*system) Archived(path string) bool {
	l, err := layout.Of(path)
	return err == nil && l.Offline
}

func (*system) ReadDir(path string) (names []string, err error) {
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (*system) CPUs() (allowed, threads int) { return runtime.NumCPU(), runtime.GOMAXPROCS(0) }

func (*system) MemoryLock() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return math.MaxUint64
	}
	return limit.Cur
}

// maxOutput bounds how much of a program's output is kept.
const maxOutput = 1 << 20

// Output implements Machine. The program has no terminal, is killed together with everything that
// it started, and does not outlive this process: it inherits mpirun's descriptors, and mpirun would
// wait for it.
func (*system) Output(within time.Duration, env []string, name string, args ...string) (
	string, error,
) {
	runtime.LockOSThread() // the signal is sent when the thread that started the program ends
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // a grandchild in another group may keep the pipe open
	var out, errs limited
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("%s has not ended in %v", name, within)
	}
	if says := lastLine(errs.String()); err != nil && says != "" {
		err = fmt.Errorf("%w: %s", err, says)
	}
	if out.Len() == 0 { // "srun --mpi=list" of Slurm before 22 writes to stderr
		return errs.String(), err
	}
	return out.String(), err
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// limited keeps the first bytes that are written to it.
type limited struct{ strings.Builder }

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	l.Builder.Write(b[:min(len(b), maxOutput-l.Len())])
	return len(b), nil
}

func (s *system) Index(data string) (path string, found bool, err error) {
	info, err := os.Stat(data)
	if err != nil {
		return data, false, err
	}
	if !info.IsDir() {
		_, err := s.manifest(data)
		return data, err == nil, err
	}
	own := filepath.Join(data, index.ManifestName)
	if _, err := os.Stat(own); err == nil {
		return own, true, nil
	}
	cached, err := index.CachedManifest(data, index.OpenOptions{})
	if err != nil {
		return "", false, nil // without a home directory there is no cache
	}
	if _, err := os.Stat(cached); err != nil {
		return "", false, nil
	}
	return cached, true, nil
}

func (*system) TimeRead(path string, bytes int64) (time.Duration, error) {
	began := time.Now()
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(f, bytes))
	return time.Since(began), err
}
