package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"rankpool/slurm"
)

// newEndCommand is what srun starts once a node, by hand or for "rankpool run": it ends the node's ranks.
func newEndCommand() *cobra.Command {
	var session string
	var keep bool
	cmd := &cobra.Command{
		Use:   "end [--session DIR]",
		Short: "End the cache that \"serve\" started on this node",
		Long: `end asks the ranks of this node to finish, waits for them, and removes the session folder. The ranks of all nodes finish together,
so it is started on all of them:

  srun --overlap -N $SLURM_NNODES -n $SLURM_NNODES rankpool end`,
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) (err error) {
			if session == "" {
				if session, err = ownJobSession(slurm.Detect(os.Getenv), "end"); err != nil {
					return err
				}
			}
			return endRanks(session, keep)
		},
	}
	cmd.Flags().StringVar(&session, "session", "", "folder of the run on this node (default: by job, in /dev/shm)")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the session folder")
	_ = cmd.Flags().MarkHidden("keep") // it is there: the line above
	return cmd
}

// endRanks ends the ranks of a session on this machine and, unless it is to be kept, removes the session.
func endRanks(session string, keep bool) error {
	folders := rankFolders(session)
	askToEnd(folders)
	serves := func(folder string) bool { return locked(filepath.Join(folder, lockName)) }
	for end := time.Now().Add(endPatience); slices.ContainsFunc(folders, serves) && time.Now().Before(end); {
		time.Sleep(pollEvery)
	}
	if keep || launcherHolds(session) { // the launcher has still to read the run log
		return nil
	}
	return os.RemoveAll(session)
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
