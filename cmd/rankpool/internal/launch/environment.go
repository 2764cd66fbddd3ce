package launch

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/python"
)

// A seat is the place of one trainer.
type seat struct {
	rank, world           int // among all trainers
	localRank, localWorld int // among those of the machine
	host                  string
	port                  int
	threads               int // for OMP_NUM_THREADS; 0 where torchrun or Slurm knows better
}

// trainerEnv returns the environment of a trainer: the variables of torch.distributed's env://, and
// those of the client. folder is the folder of the trainer's rank in the session; pythonPath is ""
// if the client was not extracted. MASTER_ADDR and MASTER_PORT are kept if the user has set them.
func trainerEnv(env []string, s seat, sessionDir, folder, pythonPath string) []string {
	get := world.Lookup(env)
	set := map[string]string{
		"MASTER_ADDR":      cmp.Or(get("MASTER_ADDR"), s.host),
		"MASTER_PORT":      cmp.Or(get("MASTER_PORT"), strconv.Itoa(s.port)),
		"RANK":             strconv.Itoa(s.rank),
		"WORLD_SIZE":       strconv.Itoa(s.world),
		"LOCAL_RANK":       strconv.Itoa(s.localRank),
		"LOCAL_WORLD_SIZE": strconv.Itoa(s.localWorld),
		"RANKPOOL_SESSION": sessionDir,
		"RANKPOOL_SOCKET":  filepath.Join(folder, session.DoorName),
	}
	if s.threads > 0 && get("OMP_NUM_THREADS") == "" {
		set["OMP_NUM_THREADS"] = strconv.Itoa(s.threads)
	}
	if pythonPath != "" {
		set["PYTHONPATH"] = PythonPath(pythonPath, get)
	}
	return world.WithEnv(env, set)
}

// PythonPath returns PYTHONPATH with a folder before what is there.
func PythonPath(folder string, getenv func(string) string) string {
	if more := getenv("PYTHONPATH"); more != "" {
		return folder + string(filepath.ListSeparator) + more
	}
	return folder
}

// ExtractClient writes the Python client into the session folder, once for all trainers of the
// machine, and returns the folder for PYTHONPATH; "" if RANKPOOL_PYTHON=no selects the client that
// Python finds by itself.
func ExtractClient(sessionDir string, getenv func(string) string) (string, error) {
	if getenv("RANKPOOL_PYTHON") == "no" {
		return "", nil
	}
	dir := filepath.Join(sessionDir, "python")
	if rank.IsFolder(dir) {
		return dir, nil
	}
	fresh, err := os.MkdirTemp(sessionDir, ".python-")
	if err == nil {
		err = os.CopyFS(fresh, python.Files)
	}
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	// another task of the node may have been faster
	if err != nil && !rank.IsFolder(dir) {
		return "", fmt.Errorf("the Python client cannot be extracted: %w", err)
	}
	return dir, nil
}

// freePort returns a TCP port for MASTER_PORT that is not in use now, and not in taken.
func freePort(taken ...int) (int, error) {
	var err error
	for i := range 100 + len(taken) {
		port := agreedPort(fmt.Sprint(os.Getpid(), ".", i))
		if slices.Contains(taken, port) {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp",
			net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port for MASTER_PORT: %w", err)
}
