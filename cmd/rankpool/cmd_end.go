package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/launch"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/slurm"
)

// newEndCommand ends the ranks of this node. srun starts it once per node, by hand or for "rankpool
// run".
func newEndCommand() *cobra.Command {
	var session string
	var keep bool
	cmd := &cobra.Command{
		Use:   "end [--session DIR]",
		Short: "End the ranks that a killed run has left on this node",
		Long: `end asks the ranks of this node to finish, waits for them, and removes the session
folder. Use it to clean up after a "rankpool run" that was killed. The ranks of all nodes finish
together, so start it on all of them:

  srun --overlap -N $SLURM_NNODES -n $SLURM_NNODES rankpool end

It does not end a training under "rankpool run", which restarts its ranks as it does after any
failure; training continues with the same samples. To end such a training, cancel the job (scancel),
or send SIGTERM to "rankpool run", which ends its ranks itself.

end refuses a folder that does not belong to a session, and changes nothing in it.`,
		Args: program.Exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) (err error) {
			if session == "" {
				if session, err = launch.OwnJobSession(slurm.Detect(os.Getenv), "end"); err != nil {
					return err
				}
			}
			return endRanks(session, keep)
		},
	}
	cmd.Flags().StringVar(&session, "session", "",
		"folder of the run on this node (default: by job, in /dev/shm)")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the session folder")
	_ = cmd.Flags().MarkHidden("keep") // cannot fail: the flag is defined above
	return cmd
}

// endRanks ends the ranks of a session on this machine and, unless keep is set, removes the
// session. Errors: a folder that does not belong to a session, and ranks that have not ended within
// exit.Patience.
func endRanks(folder string, keep bool) error {
	if !session.Exists(folder) {
		fmt.Fprintf(outlet.Stderr, "rankpool: no session %s on this node: nothing to end\n", folder)
		return nil
	}
	if err := session.Check(folder); err != nil {
		return err
	}
	folders := session.RankFolders(folder)
	control.EndAll(folders)
	serves := func(folder string) bool {
		return session.Locked(filepath.Join(folder, session.LockName))
	}
	for end := time.Now().Add(exit.Patience); slices.ContainsFunc(folders, serves) &&
		time.Now().Before(end); {
		time.Sleep(session.PollEvery)
	}
	var err error
	if hung := slices.DeleteFunc(folders,
		func(folder string) bool { return !serves(folder) }); len(hung) > 0 {
		err = fmt.Errorf("the cache has not ended within %v: the processes of %s hang; kill them",
			exit.Patience, strings.Join(hung, ", "))
	}
	if keep || session.LauncherHolds(folder) { // the launcher has yet to read the run log
		return err
	}
	return errors.Join(err, os.RemoveAll(folder))
}
