package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rankpool/slurm"
	"rankpool/staging/posix"
)

// A fakeMachine returns what a test has put into it.
type fakeMachine struct {
	vars       map[string]string
	files      map[string]string
	mounts     map[string]FileSystem
	programs   map[string]string // their output by command line; others are not installed
	failing    map[string]error  // by command line
	allowed    int
	threads    int
	user       int
	samples    []string
	manifest   string
	noManifest error
	archived   []string
	noRead     error

	lastEnv []string // of the last program
}

func (m *fakeMachine) LookupEnv(name string) (string, bool) {
	v, found := m.vars[name]
	return v, found
}

func (m *fakeMachine) ReadFile(path string) ([]byte, error) {
	text, found := m.files[path]
	if !found {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func (m *fakeMachine) Stat(path string) (fs.FileInfo, error) {
	if _, found := m.mounts[path]; !found {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
	return fstest.MapFS{"data/x": {}}.Stat("data")
}

func (m *fakeMachine) FileSystem(path string) (FileSystem, error) {
	f, found := m.mounts[path]
	if !found {
		return f, &fs.PathError{Op: "statfs", Path: path, Err: fs.ErrNotExist}
	}
	return f, nil
}

func (m *fakeMachine) CPUs() (int, int) { return m.allowed, m.threads }
func (m *fakeMachine) UserID() int      { return m.user }

func (m *fakeMachine) LookPath(name string) (string, error) {
	for line := range m.programs {
		if line == name || strings.HasPrefix(line, name+" ") {
			return "/usr/bin/" + name, nil
		}
	}
	return "", errors.New("executable file not found in $PATH")
}

func (m *fakeMachine) Output(_ time.Duration, env []string, name string, args ...string) (
	string, error,
) {
	m.lastEnv = env
	line := name
	if len(args) > 0 && args[0] != "-c" {
		line += " " + strings.Join(args, " ")
	}
	text, found := m.programs[line]
	if err := m.failing[line]; err != nil || !found {
		return text, errors.Join(err, map[bool]error{false: fs.ErrNotExist}[found])
	}
	return text, nil
}

func (m *fakeMachine) Manifest(data string, _ int) (string, []string, error) {
	if m.noManifest != nil {
		return data, nil, m.noManifest
	}
	return m.manifest, m.samples, nil
}

func (m *fakeMachine) Archived(path string) bool { return slices.Contains(m.archived, path) }

func (m *fakeMachine) Open(string) error { return m.noRead }

const healthyPython = `{"version": [3, 11, 2], "executable": "/usr/bin/python3", ` +
	`"torch": "2.4.0", "cuda": true, "cuda_compiled": "12.4", ` +
	`"client": "/dev/shm/x/python/rankpool"}`

// healthy returns an environment without problems: a rank of a Slurm job on 4 nodes.
func healthy(t *testing.T) (*Env, *fakeMachine) {
	t.Helper()
	m := &fakeMachine{
		vars: map[string]string{
			"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1",
		},
		files: map[string]string{
			"/proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: " +
				"62914560 kB\n",
		},
		mounts: map[string]FileSystem{
			"/dev/shm": {Type: "tmpfs", Bytes: 32 << 30, FreeBytes: 31 << 30, Reach: posix.Disk},
			"/tier":    {Type: "ext4", Bytes: 1 << 40, FreeBytes: 100 << 30, Reach: posix.Disk},
			"/data":    {Type: "lustre", Bytes: 1 << 50, FreeBytes: 1 << 49, Reach: posix.Shared},
		},
		programs: map[string]string{
			"srun --version": "slurm 23.11.4\n", "srun --mpi=list": "MPI plugin types " +
				"are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n",
			"loginctl show-session --property=RemoveIPC": "RemoveIPC=no\n",
			"sh": "1024\n524288\n", "python3": healthyPython + "\n",
		},
		failing: map[string]error{}, allowed: 8, threads: 8,
		samples: []string{"/data/a", "/data/b"}, manifest: "/data/rankpool.parquet", user: firstUser,
	}
	return &Env{
		Machine: m, Version: "1.0", Job: slurm.Job{JobID: "7", StepID: "0", Nodes: 4, Tasks: 4},
		MPI: MPI{
			Library: "Open MPI v4.1.4", Path: "/lib/libmpi.so.40", Why: "mpirun is Open MPI's",
			Flavour: "Open MPI", Level: "MPI_THREAD_SERIALIZED",
		},
		Launch: Launch{Tasks: 4, By: "srun --mpi=pmix", LocalTasks: 1, SrunMPI: "pmix"},
		Data:   []string{"/data"}, MemoryBytes: 32 << 30,
		Tier:    &Tier{Dir: "/tier", Bytes: 80 << 30},
		Python:  Python{Command: "python3", Path: "/dev/shm/x/python"},
		Runtime: Runtime{Base: "/dev/shm", SocketPath: "/dev/shm/rankpool-0-slurm7/r3/door.sock"},
	}, m
}
