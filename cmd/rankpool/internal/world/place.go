// Package world finds out which task this process is, of how many, who started them, and which MPI
// library joins them.
package world

import (
	"fmt"
	"strconv"

	"rankpool/cmd/internal/exit"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
)

// A Place is a process's place among the tasks that a launcher started together.
type Place struct {
	Tasks, Task           int // tasks is 0 for a process that no launcher started
	LocalTasks, LocalTask int // on this machine
	By                    string
}

// OnlyFirst returns an error that all tasks have, such as a wrong flag, for the first task to
// print; the others get its exit code without a message. OnceForAll also gives the first task time
// to print.
func (p Place) OnlyFirst(err error) error {
	if p.Task > 0 {
		return &exit.StatusError{Code: exit.Code(err)}
	}
	return err
}

// What started the tasks.
const (
	ByOpenMPI   = "Open MPI's mpirun"
	ByMPICH     = "MPICH's mpirun"
	BySrunPMIx  = "srun --mpi=pmix"
	BySrunPMI2  = "srun --mpi=pmi2"
	BySrunPlain = "srun without --mpi"
	byRun       = "rankpool run" // by a launcher that sets no variables
)

// Find reads the place from the environment that getenv gives.
//
// Open MPI's own variables come first: under Slurm mpirun's daemons are tasks of a step themselves,
// and the ranks inherit the step's variables.
func Find(getenv func(string) string) Place {
	number := func(name string) int {
		n, _ := strconv.Atoi(getenv(name))
		return n
	}
	job := slurm.Detect(getenv)
	switch {
	case number("OMPI_COMM_WORLD_SIZE") > 0:
		return Place{
			number("OMPI_COMM_WORLD_SIZE"), number("OMPI_COMM_WORLD_RANK"),
			number("OMPI_COMM_WORLD_LOCAL_SIZE"), number("OMPI_COMM_WORLD_LOCAL_RANK"), ByOpenMPI,
		}
	case number("PMI_SIZE") > 0 && getenv("MPI_LOCALNRANKS") != "":
		return Place{
			number("PMI_SIZE"), number("PMI_RANK"), number("MPI_LOCALNRANKS"),
			number("MPI_LOCALRANKID"), ByMPICH,
		}
	case job.InStep() && job.Tasks > 0:
		at := Place{
			job.Tasks, max(0, job.ProcID), max(1, job.LocalTasks), max(0, job.LocalID),
			BySrunPlain,
		}
		if getenv("PMIX_NAMESPACE") != "" {
			at.By = BySrunPMIx
		} else if getenv("PMI_SIZE") != "" || getenv("PMI_JOBID") != "" {
			at.By = BySrunPMI2
		}
		return at
	case number("PMI_SIZE") > 0:
		return Place{
			number("PMI_SIZE"), number("PMI_RANK"), number("PMI_SIZE"), number("PMI_RANK"),
			ByMPICH,
		}
	}
	return Place{}
}

// BySrun reports whether the tasks are those of a step of Slurm.
func (p Place) BySrun() bool {
	return p.By == BySrunPMIx || p.By == BySrunPMI2 || p.By == BySrunPlain
}

// CheckWorld compares what the launcher started with what MPI sees: if the launcher and the library
// do not match, each task silently sees a world of one. The error names the remedy.
func CheckWorld(tasks int, by string, mpiSize int, library transport.Library) error {
	if tasks <= 1 || tasks == mpiSize {
		return nil
	}
	wrong := fmt.Sprintf("%s started %d tasks, but MPI sees %d", by, tasks, mpiSize)
	if remedy := LauncherOf(library, by); remedy != "" {
		return fmt.Errorf("%s: %s", wrong, remedy)
	}
	return fmt.Errorf("%s: the launcher and the MPI library (%s) do not fit", wrong, About(library))
}

// About names a library, and why it was chosen.
func About(library transport.Library) string {
	return fmt.Sprintf("%s: %s, since %s", library.Version, library.Path, library.Why)
}

// LauncherOf returns advice on how to launch ranks if the launcher does not fit their library, or
// "".
//
// Source: as for SlurmMPI.
func LauncherOf(library transport.Library, by string) string {
	own := library.Family
	var remedy string
	switch {
	case by == byRun:
		return ""
	case own == mpilib.MPICH && by == ByOpenMPI:
		remedy = "start it with MPICH's mpirun"
	case own == mpilib.OpenMPI && by == ByMPICH:
		remedy = "start it with Open MPI's mpirun"
	case own == mpilib.MPICH && by != ByMPICH && by != BySrunPMI2:
		remedy = "start it with \"srun --mpi=pmi2\""
	case own == mpilib.OpenMPI && by != ByOpenMPI && by != BySrunPMIx:
		remedy = "start it with \"srun --mpi=pmix\""
	default:
		return ""
	}
	return fmt.Sprintf("the MPI library is %s (%s, since %s), so %s, or choose another library: "+
		"load its module, or name one in "+mpilib.Variable,
		own, library.Path, library.Why, remedy)
}
