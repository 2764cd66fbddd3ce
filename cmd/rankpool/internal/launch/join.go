package launch

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/training"
	"rankpool/slurm"
)

const (
	// doorPatience is how long a task of run's training step waits for its node's rank before it
	// starts without it: the client reads storage until the rank is there.
	doorPatience = time.Minute
	// cachePatience is how long a step that was started by hand waits for run, which may index the
	// data first.
	cachePatience = 10 * time.Minute
)

// Join becomes the training command argv, of the training called name ("" for none). It returns
// only on failure.
func Join(dir, name string, argv []string) (err error) {
	if len(argv) == 0 {
		return exit.NoCommand("srun --overlap rankpool join -- python train.py")
	}
	if name != "" && !training.IsJobName(name) {
		return exit.Usagef("--job must be %s, not %q", training.JobNames, name)
	}
	job, byHand := slurm.Detect(os.Getenv), dir == ""
	if byHand {
		if dir, err = OwnJobSession(job, "join"); err != nil {
			return err
		}
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("the training command cannot be started: %w", err)
	}
	told := make(chan os.Signal, 1)
	exit.Notify(told, unix.SIGUSR1, unix.SIGUSR2)
	world.WarnTask(job.ProcID, withoutGPUs(os.Getenv, byHand))
	nodes := slurm.AllocatedNodes(os.Getenv)
	patience := doorPatience
	if byHand {
		patience = cachePatience
	}
	folder, ready := awaitRank(dir, job, nodes, patience)
	switch {
	case !ready && byHand:
		return fmt.Errorf("no rank serves on node %d: start the cache before, in the batch script "+
			"with \"rankpool run … -- sleep infinity &\"", job.NodeID)
	case !ready:
		fmt.Fprintf(
			os.Stderr, "rankpool: no rank is ready on node %d after %v; training reads storage "+
				"until it is\n", job.NodeID, doorPatience)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := session.CheckFolder(dir); err != nil {
		return err
	}
	holdSession(dir)
	note := session.StepName
	if name != "" {
		note += "@" + name
	}
	session.NoteStep(dir, note, job)
	client, err := ExtractClient(dir, os.Getenv)
	if err != nil {
		return err
	}
	select {
	case s := <-told:
		// training's time was over before it began
		return exit.SignalError{Signal: s.(syscall.Signal)}
	default:
	}
	if isAgent(argv) {
		signal.Ignore(unix.SIGUSR1, unix.SIGUSR2)
	}
	return unix.Exec(path, argv,
		ownGPUs(joinEnv(os.Environ(), job, name, dir, folder, client)))
}

// OwnJobSession returns the session folder of the job that this process is in.
func OwnJobSession(job slurm.Job, verb string) (string, error) {
	if !job.InJob() {
		return "", exit.Usagef(
			"%s outside Slurm needs --session DIR, the folder of the run", verb)
	}
	return session.OfJob(job)
}

// joinEnv returns the environment of one task of the training step. torchrun gives its children
// their own RANK; with a plain "python train.py", each task is a trainer itself. Trainings with
// different names meet at different ports.
func joinEnv(env []string, job slurm.Job, name, dir, folder, client string) []string {
	at := world.Find(world.Lookup(env))
	s := seat{
		rank: at.Task, world: max(1, at.Tasks), localRank: at.LocalTask,
		localWorld: max(1, at.LocalTasks),
	}
	s.host, s.port = firstHost(at, job, world.Lookup(env)), agreedPort(job.JobID+name)
	env = trainerEnv(env, s, dir, folder, client)
	if name != "" {
		env = world.WithEnv(env, map[string]string{"RANKPOOL_JOB": name})
	}
	if s.localWorld > 1 {
		return env
	}
	return withTorchrun(env, job.JobID+name, job.Nodes, job.NodeID)
}

// withTorchrun adds defaults for torchrun's options on nodes with one task each. On a single node
// that is a port that no other job's torchrun uses.
//
// Source: PyTorch, torch/distributed/argparse_util.py: the option --nnodes reads PET_NNODES, and so
// on for the others. torchrun ignores MASTER_PORT.
func withTorchrun(env []string, job string, nodes, node int) []string {
	get := world.Lookup(env)
	switch {
	case get("PET_NNODES") != "", nodes < 2 && get("PET_MASTER_PORT") != "":
		return env
	case nodes < 2:
		return world.WithEnv(env, map[string]string{"PET_MASTER_PORT": get("MASTER_PORT")})
	}
	return world.WithEnv(env, map[string]string{
		"PET_NNODES":        strconv.Itoa(nodes),
		"PET_NODE_RANK":     strconv.Itoa(node),
		"PET_RDZV_ID":       "rankpool" + job,
		"PET_RDZV_BACKEND":  "c10d",
		"PET_RDZV_ENDPOINT": get("MASTER_ADDR") + ":" + get("MASTER_PORT"),
	})
}

// awaitRank waits until this node's rank accepts connections, and returns its folder and whether it
// does. A step on all nodes of the allocation has the ranks' order; on fewer nodes, only the folder
// found here identifies the rank.
func awaitRank(
	dir string, job slurm.Job, nodes int, patience time.Duration,
) (folder string, ready bool) {
	folder = session.RankFolder(dir, max(0, job.NodeID))
	for end := time.Now().Add(patience); !accepts(folder); time.Sleep(session.PollEvery) {
		here := slices.DeleteFunc(session.RankFolders(dir),
			func(folder string) bool { return !accepts(folder) })
		if job.Nodes < nodes && len(here) == 1 {
			return here[0], true
		}
		if time.Now().After(end) {
			return folder, false
		}
	}
	return folder, true
}

// accepts reports whether a rank serves in a folder: one that died leaves its ready file behind.
func accepts(folder string) bool {
	return session.Exists(filepath.Join(folder, session.ReadyName)) && control.Answers(folder)
}

// holdSession keeps the session folder from being removed as stale as long as this process, or the
// program that it becomes by exec, lives. On the launcher's node the launcher's lock does that, and
// this call fails.
func holdSession(dir string) {
	// without O_CLOEXEC, on purpose
	fd, err := unix.Open(filepath.Join(dir, session.LockName), unix.O_CREAT|unix.O_RDWR, 0o600)
	if err == nil {
		_ = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	}
}
