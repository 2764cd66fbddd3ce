package main

import (
	"strings"
	"testing"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
)

func env(lines ...string) func(string) string { return lookup(lines) }

func TestFindPlace(t *testing.T) {
	step := []string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=2(x2)"}
	for _, c := range []struct {
		name string
		env  []string
		want place
	}{
		{"by hand", nil, place{}},
		{"batch script", []string{"SLURM_JOB_ID=1", "SLURM_NTASKS=4", "SLURM_PROCID=0"}, place{}},
		{"Open MPI", []string{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0"}, place{4, 2, 2, 0, byOpenMPI}},
		{"Open MPI in a step", append([]string{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1"}, step...), place{2, 1, 2, 1, byOpenMPI}},
		{"MPICH", []string{"PMI_SIZE=4", "PMI_RANK=1", "MPI_LOCALNRANKS=4", "MPI_LOCALRANKID=1"}, place{4, 1, 4, 1, byMPICH}},
		{"MPICH in a step", append([]string{"PMI_SIZE=2", "PMI_RANK=1", "MPI_LOCALNRANKS=1", "MPI_LOCALRANKID=0"}, step...), place{2, 1, 1, 0, byMPICH}},
		{"a bare PMI", []string{"PMI_SIZE=4", "PMI_RANK=1"}, place{4, 1, 4, 1, byMPICH}},
		{"srun pmix", append([]string{"PMIX_NAMESPACE=x"}, step...), place{4, 3, 2, 1, bySrunPMIx}},
		{"srun pmi2", append([]string{"PMI_SIZE=4", "PMI_JOBID=1.0"}, step...), place{4, 3, 2, 1, bySrunPMI2}},
		{"srun", step, place{4, 3, 2, 1, bySrunPlain}},
	} {
		if got := findPlace(env(c.env...)); got != c.want {
			t.Errorf("%s: findPlace = %+v, want %+v", c.name, got, c.want)
		}
		tasks, by := launchedAs(env(c.env...))
		if tasks != c.want.tasks || by != c.want.by {
			t.Errorf("%s: launchedAs = %d, %q", c.name, tasks, by)
		}
	}
}

func TestCheckWorld(t *testing.T) {
	for _, c := range []struct {
		tasks   int
		by      string
		mpiSize int
		family  mpilib.Family
		want    string // "" for no error
	}{
		{0, "", 1, "", ""},
		{1, bySrunPlain, 1, "", ""},
		{4, bySrunPMIx, 4, "openmpi", ""},
		{4, byOpenMPI, 1, "mpich", "start it with MPICH's mpirun"},
		{4, byMPICH, 1, "openmpi", "start it with Open MPI's mpirun"},
		{4, bySrunPMIx, 1, "mpich", "srun --mpi=pmi2"},
		{4, bySrunPlain, 1, "mpich", "srun --mpi=pmi2"},
		{4, bySrunPMI2, 1, "openmpi", "srun --mpi=pmix"},
		{4, bySrunPlain, 1, "openmpi", "srun --mpi=pmix"},
		{4, bySrunPMIx, 2, "openmpi", "do not fit"},
		{4, bySrunPMIx, 1, "other", "do not fit"},
	} {
		library := transport.Library{Path: "/lib/libmpi.so", Family: c.family, Why: "of a test"}
		err := checkWorld(c.tasks, c.by, c.mpiSize, library)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("checkWorld(%d, %q, %d, %q) = %v, want %q", c.tasks, c.by, c.mpiSize, c.family, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "/lib/libmpi.so, since of a test") {
			t.Errorf("%v does not say which library, and why", err)
		}
	}
}
