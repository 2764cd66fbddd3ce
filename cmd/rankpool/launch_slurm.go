package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"rankpool/mpicache"
	"rankpool/slurm"
)

// slurmLayout starts two steps that overlap: the cache, one rank a node, and the training command with the tasks
// that the batch script asked for. They are two, because a rank that dies takes its step with it.
func (o *runOptions) slurmLayout(job slurm.Job, dir string, env []string) layout {
	l := layout{restart: true, reports: true}
	everyNode := []string{
		"srun", "--overlap", "--export=ALL", "--input=none", "--cpu-bind=none", "--gres=none",
		"--nodes=" + strconv.Itoa(job.Nodes), "--ntasks=" + strconv.Itoa(job.Nodes), "--ntasks-per-node=1",
	}
	cache := append(slices.Clone(everyNode), "--job-name=rankpool", "--kill-on-bad-exit=1", "--mpi="+slurmMPI(mpicache.MPIFlavour()))
	l.cache = command{args: append(cache, o.serveArgs(dir)...), env: env, stdout: os.Stderr}
	train := []string{"srun", "--overlap", "--export=ALL", "--kill-on-bad-exit=1", "--quit-on-interrupt", o.self, "node-trainer", dir, "--"}
	set := map[string]string{"RANKPOOL_SESSION": dir}
	get := lookup(env)
	if get("MASTER_ADDR") == "" {
		set["MASTER_ADDR"] = job.FirstHost()
	}
	if get("MASTER_PORT") == "" {
		set["MASTER_PORT"] = strconv.Itoa(agreedPort(job, 0))
	}
	l.trainers = []command{{args: append(train, o.command...), env: withEnv(env, set), stdout: os.Stdout}}
	l.endRanks = append(slices.Clone(everyNode), "--mpi=none", o.self, "node-end", dir)
	l.end = append(slices.Clone(l.endRanks), "--remove")
	if onFirstNode(job) {
		l.folders = []string{rankFolder(dir, 0)}
	}
	return l
}

// slurmMPI returns srun's name for how to start ranks of a flavour.
//
// Source: measured with Slurm 22.05, Open MPI 4.1 and MPICH 4.0: MPICH does not speak PMIx, Open MPI as Debian
// builds it does not speak PMI2, and each silently starts worlds of one under the other's.
func slurmMPI(flavour string) string {
	switch flavour {
	case flavourOpenMPI:
		return "pmix"
	case flavourMPICH:
		return "pmi2"
	case flavourOther:
		return "pmix" // the one that the others have in common
	}
	return "none"
}

// onFirstNode reports whether this process runs on the first node of the allocation, where rank 0 is. The shell of
// salloc may run elsewhere.
func onFirstNode(job slurm.Job) bool {
	if job.NodeID != slurm.Absent {
		return job.NodeID == 0
	}
	host, err := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	first, _, _ := strings.Cut(job.FirstHost(), ".")
	return err == nil && short == first
}

// doorPatience is how long a task of the training step waits for its node's rank before it begins without it: the
// client reads storage until the rank comes.
const doorPatience = time.Minute

// newNodeTrainerCommand is what srun starts for the launcher, once a trainer: it becomes the training command.
func newNodeTrainerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "node-trainer SESSION -- COMMAND…",
		Hidden: true,
		Args:   cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, argv := args[0], args[1:]
			path, err := exec.LookPath(argv[0])
			if err != nil {
				return fmt.Errorf("the training command cannot be started: %w", err)
			}
			job := slurm.Detect(os.Getenv)
			folder := rankFolder(dir, max(0, job.NodeID))
			if !awaitReady(folder, doorPatience) {
				fmt.Fprintf(os.Stderr, "rankpool: no rank is ready on node %d after %v; training reads storage until it is\n", job.NodeID, doorPatience)
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			holdSession(dir)
			client, err := extractClient(dir, os.Getenv)
			if err != nil {
				return err
			}
			return unix.Exec(path, argv, nodeTrainerEnv(os.Environ(), dir, folder, client))
		},
	}
}

// nodeTrainerEnv returns the environment of one task of the training step. torchrun gives its children a RANK of
// their own; a plain "python train.py" a task is a trainer itself.
func nodeTrainerEnv(env []string, dir, folder, client string) []string {
	at := findPlace(lookup(env))
	s := seat{rank: at.task, world: at.tasks, localRank: at.localTask, localWorld: max(1, at.localTasks)}
	return trainerEnv(env, s, dir, folder, client)
}

// awaitReady waits until the rank of a folder accepts, and reports whether it does.
func awaitReady(folder string, patience time.Duration) bool {
	for end := time.Now().Add(patience); ; time.Sleep(pollEvery) {
		if isReady(folder) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// holdSession keeps the session folder from being taken for a stale one as long as this process, or what it
// becomes by exec, lives. On the launcher's node the launcher's lock does that, and this one fails.
func holdSession(dir string) {
	fd, err := unix.Open(filepath.Join(dir, lockName), unix.O_CREAT|unix.O_RDWR, 0o600) // without O_CLOEXEC, on purpose
	if err == nil {
		_ = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	}
}

// newNodeEndCommand is what srun starts for the launcher, once a node: it ends the node's ranks and, with --remove,
// removes the session folder.
func newNodeEndCommand() *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:    "node-end SESSION",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			folders := rankFolders(args[0])
			askToEnd(folders)
			serves := func(folder string) bool { return locked(filepath.Join(folder, lockName)) }
			for end := time.Now().Add(endPatience); slices.ContainsFunc(folders, serves) && time.Now().Before(end); {
				time.Sleep(pollEvery)
			}
			if !remove || launcherHolds(args[0]) { // the launcher has still to read the run log
				return nil
			}
			return os.RemoveAll(args[0])
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the session folder")
	return cmd
}

// launcherHolds reports whether the launcher of a session, which locks it for itself, runs on this node. Trainers
// share their locks.
func launcherHolds(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
