package world

import (
	"fmt"
	"time"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/mpicache/transport/mpilib"
)

// WrongLaunch returns an error, with the line to type, if the launch of "rankpool run" is wrong, as
// far as that can be found before MPI starts. nodes is the size of the allocation, 0 outside Slurm.
//
// Two ranks on one machine are wrong only if there are several machines, or if Slurm has started
// them: otherwise the user may just be trying things out.
func WrongLaunch(at Place, nodes int, family mpilib.Family) error {
	switch {
	case at.Tasks <= 1:
		return nil
	case at.LocalTasks > 1 && (at.BySrun() || nodes > 1 || at.LocalTasks < at.Tasks):
		return fmt.Errorf("%s started %d tasks on this node, and a node has one rank: %s", at.By,
			at.LocalTasks, oneRank(at, nodes, family))
	case family == mpilib.OpenMPI && at.By == BySrunPlain:
		return fmt.Errorf("%s started %d tasks, which cannot find each other: type \"srun -K "+
			"--mpi=pmix rankpool run …\", or in the batch script \"rankpool run …\" without srun",
			at.By, at.Tasks)
	}
	return nil
}

// OnceForAll returns err on the first task; the other tasks leave the report to that one.
func OnceForAll(at Place, err error) error {
	if at.Task > 0 {
		return FirstSpeaks()
	}
	return err
}

// FirstSpeaks returns the error of a task that leaves it to the first task to report the common
// problem. It first gives that task time: when one task fails, mpirun ends all and drops their
// output.
func FirstSpeaks() error {
	time.Sleep(2 * time.Second)
	return &exit.StatusError{Code: exit.Failure}
}

// oneRank returns the line to type for one rank a node.
func oneRank(at Place, nodes int, family mpilib.Family) string {
	var line string
	switch at.By {
	case ByOpenMPI:
		line = "mpirun --map-by ppr:1:node --bind-to none rankpool run"
	case ByMPICH:
		line = fmt.Sprintf("mpirun -ppn 1 -n %d rankpool run", max(nodes, at.Tasks/at.LocalTasks))
	default:
		line = fmt.Sprintf("srun -K --mpi=%s --ntasks=%d --ntasks-per-node=1 rankpool run",
			SlurmMPI(family, ""), max(1, nodes))
	}
	line += fmt.Sprintf(" --trainers-per-rank %d", at.LocalTasks)
	if !at.BySrun() {
		return fmt.Sprintf("type %q", line+" …")
	}
	return fmt.Sprintf("type \"rankpool run …\" in the batch script, without srun, which starts "+
		"%d trainers a node, or %q", at.LocalTasks, line+" …")
}

// WarnTask prints warnings on the first task only.
func WarnTask(task int, warnings ...string) {
	for _, w := range warnings {
		if task == 0 && w != "" {
			messages.Say("%s", w)
		}
	}
}
