package main

import (
	"fmt"
	"strconv"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
)

// A place is where a launcher put this process among the tasks it started together.
type place struct {
	tasks, task           int // tasks is 0 for a process that no launcher started
	localTasks, localTask int // on this machine
	by                    string
}

const (
	byOpenMPI   = "Open MPI's mpirun"
	byMPICH     = "MPICH's mpirun"
	bySrunPMIx  = "srun --mpi=pmix"
	bySrunPMI2  = "srun --mpi=pmi2"
	bySrunPlain = "srun without --mpi"
	byRun       = "rankpool run" // by a launcher that tells its tasks nothing
)

// findPlace reads the place from the environment that getenv gives.
//
// Open MPI's own variables come first: under Slurm mpirun's daemons are tasks of a step themselves, and the ranks
// inherit the step's variables.
func findPlace(getenv func(string) string) place {
	number := func(name string) int {
		n, _ := strconv.Atoi(getenv(name))
		return n
	}
	job := slurm.Detect(getenv)
	switch {
	case number("OMPI_COMM_WORLD_SIZE") > 0:
		return place{
			number("OMPI_COMM_WORLD_SIZE"), number("OMPI_COMM_WORLD_RANK"),
			number("OMPI_COMM_WORLD_LOCAL_SIZE"), number("OMPI_COMM_WORLD_LOCAL_RANK"), byOpenMPI,
		}
	case number("PMI_SIZE") > 0 && getenv("MPI_LOCALNRANKS") != "":
		return place{number("PMI_SIZE"), number("PMI_RANK"), number("MPI_LOCALNRANKS"), number("MPI_LOCALRANKID"), byMPICH}
	case job.InStep() && job.Tasks > 0:
		at := place{job.Tasks, max(0, job.ProcID), max(1, job.LocalTasks), max(0, job.LocalID), bySrunPlain}
		if getenv("PMIX_NAMESPACE") != "" {
			at.by = bySrunPMIx
		} else if getenv("PMI_SIZE") != "" || getenv("PMI_JOBID") != "" {
			at.by = bySrunPMI2
		}
		return at
	case number("PMI_SIZE") > 0:
		return place{number("PMI_SIZE"), number("PMI_RANK"), number("PMI_SIZE"), number("PMI_RANK"), byMPICH}
	}
	return place{}
}

// bySrun reports whether the tasks are those of a step of Slurm.
func (p place) bySrun() bool { return p.by == bySrunPMIx || p.by == bySrunPMI2 || p.by == bySrunPlain }

// launchedAs returns how many tasks a launcher started together with this process, and the launcher's name.
// It is 0 and "" for a process that was started by hand.
func launchedAs(getenv func(string) string) (tasks int, by string) {
	at := findPlace(getenv)
	return at.tasks, at.by
}

// checkWorld compares what the launcher started with what MPI sees: tasks that each see a world of one are the accident of silent
// singletons. The error names the remedy.
func checkWorld(tasks int, by string, mpiSize int, library transport.Library) error {
	if tasks <= 1 || tasks == mpiSize {
		return nil
	}
	wrong := fmt.Sprintf("%s started %d tasks, but MPI sees %d", by, tasks, mpiSize)
	if remedy := launcherOf(library, by); remedy != "" {
		return fmt.Errorf("%s: %s", wrong, remedy)
	}
	return fmt.Errorf("%s: the launcher and the MPI library (%s) do not fit", wrong, about(library))
}

// about names a library, and why it was taken.
func about(library transport.Library) string {
	return fmt.Sprintf("%s: %s, since %s", library.Version, library.Path, library.Why)
}

// launcherOf says how to launch ranks that were launched in a way that does not fit their library; "" where it may.
//
// Source: as for slurmMPI.
func launcherOf(library transport.Library, by string) string {
	own := library.Family
	remedy := ""
	switch {
	case by == byRun:
		return ""
	case own == mpilib.MPICH && by == byOpenMPI:
		remedy = "start it with MPICH's mpirun"
	case own == mpilib.OpenMPI && by == byMPICH:
		remedy = "start it with Open MPI's mpirun"
	case own == mpilib.MPICH && by != byMPICH && by != bySrunPMI2:
		remedy = "start it with \"srun --mpi=pmi2\""
	case own == mpilib.OpenMPI && by != byOpenMPI && by != bySrunPMIx:
		remedy = "start it with \"srun --mpi=pmix\""
	default:
		return ""
	}
	return fmt.Sprintf("the MPI library is %s (%s, since %s), so %s, or choose another library: load its module, or use --mpi-library",
		own, library.Path, library.Why, remedy)
}
