package doctor

import (
	"io/fs"
	"time"

	"rankpool/slurm"
	"rankpool/staging/posix"
)

// An Env is what checks know. They must not change it, and may use it concurrently.
type Env struct {
	Machine Machine
	Rank    int    // of this process
	Version string // of rankpool
	Job     slurm.Job
	MPI     MPI
	Launch  Launch

	Data []string // folders and manifests, absolute
	// that the user wants for samples on each node; 0: unspecified, auto, or a share of the data
	MemoryBytes int64
	Tier        *Tier // that the user wants; nil: none
	Python      Python
	Runtime     Runtime
}

func (e *Env) getenv(name string) string {
	value, _ := e.Machine.LookupEnv(name)
	return value
}

// MPI describes the MPI library.
type MPI struct {
	Library string // the first line of its version, "" if there is none
	Path    string // of the library
	Why     string // why it was chosen: a clause
	Missing error  // why there is none
	Flavour string // the usual name of its family: Open MPI, MPICH
	Level   string // its thread level, "" if it was not started
	Failure error  // of its start

	Probe func() (level string, err error) // starts MPI in another process
}

// A Launch describes how this process was started.
type Launch struct {
	Tasks      int    // started together by a launcher; 0: started by hand
	By         string // the launcher's name
	LocalTasks int    // of them on this machine
	Failure    error  // what is wrong with it: an unsuitable launcher, a world of one
	SrunMPI    string // the value of srun's --mpi for the MPI library
}

// Python is the Python that training would use.
type Python struct {
	Command string
	Given   bool // by the user
	// of the client that comes with rankpool, for PYTHONPATH; "": Python finds one by itself
	Path    string
	Failure error // why the client is not available
}

// A Tier is where a rank would keep samples on a disk of the node.
type Tier struct {
	Dir      string
	Bytes    int64 // that it may fill; 0: a share of the data
	Unusable error // why a rank would do without it
}

// Runtime is the folder for sessions.
type Runtime struct {
	Base       string
	SocketPath string // the longest socket path in it
	Failure    error
}

// A Machine is what checks may examine. NewSystem returns the real one; tests have their own. It is
// safe for concurrent use.
type Machine interface {
	LookupEnv(name string) (value string, set bool)
	ReadFile(path string) ([]byte, error)
	Stat(path string) (fs.FileInfo, error)
	FileSystem(path string) (FileSystem, error)
	CPUs() (allowed, threads int) // that the process may use, and Go's at a time
	UserID() int

	LookPath(name string) (string, error)
	// Output runs a program with additional environment variables, and returns its output, even
	// with an error. It kills the program after the time.
	Output(within time.Duration, env []string, name string, args ...string) (string, error)

	// Manifest returns the manifest that stands for a data set, "" if there is none, and up to n of
	// its files, spread over it; or why it cannot be used.
	Manifest(data string, n int) (path string, files []string, err error)
	Archived(path string) bool // a read of the file waits for a tape
	Open(path string) error    // opens the file, and reads its first byte
}

// A FileSystem is the result of statfs.
type FileSystem struct {
	Type      string // its name in mount's output, or a number
	Bytes     int64
	FreeBytes int64 // for this user
	Reach     posix.Reach
}
