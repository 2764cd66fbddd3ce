package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/layout"
	"rankpool/staging/posix"
)

// system is the Machine of this process.
type system struct{}

// NewSystem returns the Machine of this process.
func NewSystem() Machine { return system{} }

func (system) LookupEnv(name string) (string, bool)  { return os.LookupEnv(name) }
func (system) ReadFile(path string) ([]byte, error)  { return os.ReadFile(path) }
func (system) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }
func (system) UserID() int                           { return os.Geteuid() }
func (system) LookPath(name string) (string, error)  { return exec.LookPath(name) }

func (system) Archived(path string) bool {
	l, err := layout.Of(path)
	return err == nil && l.Offline
}

func (system) CPUs() (allowed, threads int) { return runtime.NumCPU(), runtime.GOMAXPROCS(0) }

// Output implements Machine. The program has no terminal, is killed together with everything that
// it started, and does not outlive this process: it inherits mpirun's descriptors, and mpirun would
// wait for it.
func (system) Output(within time.Duration, env []string, name string, args ...string) (
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
	var out, errs strings.Builder
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

func (system) Manifest(data string, n int) (path string, files []string, err error) {
	info, err := os.Stat(data)
	if err != nil {
		return data, nil, err
	}
	path, cached := data, false
	if info.IsDir() {
		path = filepath.Join(data, index.ManifestName)
		if _, err := os.Stat(path); err != nil {
			cached = true // without a home directory there is none
			path, _ = index.CachedManifest(data, index.OpenOptions{})
		}
	}
	m, err := dataset.ReadParquet(path)
	if err != nil && cached { // the next start scans the folder, and replaces it
		return "", nil, nil
	}
	if err != nil {
		return path, nil, err
	}
	n = min(n, m.Len())
	for i := range n {
		file := m.Path(draw.SampleID(i * m.Len() / n))
		if !slices.Contains(files, file) { // samples of one shard are one file
			files = append(files, file)
		}
	}
	return path, files, nil
}

func (system) Open(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (system) FileSystem(path string) (FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FileSystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	kind, block := posix.TypeOf(st.Type), cmp.Or(st.Frsize, st.Bsize)
	return FileSystem{
		Type: cmp.Or(kind.Name, fmt.Sprintf("file system %#x", uint32(st.Type))), Reach: kind.Reach,
		Bytes: int64(st.Blocks) * block, FreeBytes: int64(st.Bavail) * block,
	}, nil
}
