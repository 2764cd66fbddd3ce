package main

import (
	"fmt"
	"strconv"

	"rankpool/mpicache"
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

// checkWorld compares what the launcher started with what MPI sees: tasks that each see a world of one are the
// accident of silent singletons. built says whether this binary has MPI. The error names the remedy.
func checkWorld(tasks int, by string, mpiSize int, built bool) error {
	flavour := ""
	if built {
		flavour = mpicache.MPIFlavour()
	}
	return worldError(tasks, by, mpiSize, flavour)
}

// worldError is checkWorld for the binary of a flavour, "" for one that is built without MPI.
func worldError(tasks int, by string, mpiSize int, flavour string) error {
	if tasks <= 1 || tasks == mpiSize {
		return nil
	}
	wrong := fmt.Sprintf("%s started %d tasks, but MPI sees %d", by, tasks, mpiSize)
	if flavour == "" {
		return fmt.Errorf("%s started %d tasks, but this rankpool is built without MPI: build it with \"make build\" where mpicc is installed", by, tasks)
	}
	if remedy := launcherOf(flavour, by); remedy != "" {
		return fmt.Errorf("%s: %s", wrong, remedy)
	}
	return fmt.Errorf("%s: the launcher and the MPI library of this rankpool (%s) do not fit", wrong, flavour)
}

// launcherOf says how to launch a rankpool of a flavour that was launched in a way that does not fit; "" where it may.
//
// Source: as for slurmMPI.
func launcherOf(flavour, by string) string {
	openMPI, mpich := flavour == flavourOpenMPI, flavour == flavourMPICH
	switch {
	case mpich && by == byOpenMPI:
		return "this rankpool is built with MPICH, so start it with MPICH's mpirun or build it with MPICC=mpicc.openmpi"
	case openMPI && by == byMPICH:
		return "this rankpool is built with Open MPI, so start it with Open MPI's mpirun or build it with MPICC=mpicc.mpich"
	case mpich && by != byMPICH && by != bySrunPMI2:
		return "this rankpool is built with MPICH, so start it with \"srun --mpi=pmi2\""
	case openMPI && by != byOpenMPI && by != bySrunPMIx:
		return "this rankpool is built with Open MPI, so start it with \"srun --mpi=pmix\""
	}
	return ""
}
