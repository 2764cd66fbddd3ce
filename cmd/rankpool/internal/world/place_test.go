package world

import (
	"strings"
	"testing"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
)

func env(lines ...string) func(string) string { return Lookup(lines) }

func TestFindPlace(t *testing.T) {
	step := []string{
		"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4",
		"SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
	}
	for _, c := range []struct {
		name string
		env  []string
		want Place
	}{
		{"by hand", nil, Place{}},
		{"batch script", []string{"SLURM_JOB_ID=1", "SLURM_NTASKS=4", "SLURM_PROCID=0"}, Place{}},
		{
			"Open MPI",
			[]string{
				"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2",
				"OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
			},
			Place{4, 2, 2, 0, ByOpenMPI},
		},
		{
			"Open MPI in a step",
			append(
				[]string{
					"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1",
					"OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
				}, step...),
			Place{2, 1, 2, 1, ByOpenMPI},
		},
		{
			"MPICH",
			[]string{"PMI_SIZE=4", "PMI_RANK=1", "MPI_LOCALNRANKS=4", "MPI_LOCALRANKID=1"},
			Place{4, 1, 4, 1, ByMPICH},
		},
		{
			"MPICH in a step",
			append([]string{"PMI_SIZE=2", "PMI_RANK=1", "MPI_LOCALNRANKS=1", "MPI_LOCALRANKID=0"},
				step...),
			Place{2, 1, 1, 0, ByMPICH},
		},
		{"a bare PMI", []string{"PMI_SIZE=4", "PMI_RANK=1"}, Place{4, 1, 4, 1, ByMPICH}},
		{"srun pmix", append([]string{"PMIX_NAMESPACE=x"}, step...), Place{4, 3, 2, 1, BySrunPMIx}},
		{
			"srun pmi2", append([]string{"PMI_SIZE=4", "PMI_JOBID=1.0"}, step...),
			Place{4, 3, 2, 1, BySrunPMI2},
		},
		{"srun", step, Place{4, 3, 2, 1, BySrunPlain}},
	} {
		if got := Find(env(c.env...)); got != c.want {
			t.Errorf("%s: findPlace = %+v, want %+v", c.name, got, c.want)
		}
		tasks, by := LaunchedAs(env(c.env...))
		if tasks != c.want.Tasks || by != c.want.By {
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
		{1, BySrunPlain, 1, "", ""},
		{4, BySrunPMIx, 4, "openmpi", ""},
		{4, ByOpenMPI, 1, "mpich", "start it with MPICH's mpirun"},
		{4, ByMPICH, 1, "openmpi", "start it with Open MPI's mpirun"},
		{4, BySrunPMIx, 1, "mpich", "srun --mpi=pmi2"},
		{4, BySrunPlain, 1, "mpich", "srun --mpi=pmi2"},
		{4, BySrunPMI2, 1, "openmpi", "srun --mpi=pmix"},
		{4, BySrunPlain, 1, "openmpi", "srun --mpi=pmix"},
		{4, BySrunPMIx, 2, "openmpi", "do not fit"},
		{4, BySrunPMIx, 1, "other", "do not fit"},
	} {
		library := transport.Library{Path: "/lib/libmpi.so", Family: c.family, Why: "of a test"}
		err := CheckWorld(c.tasks, c.by, c.mpiSize, library)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("checkWorld(%d, %q, %d, %q) = %v, want %q", c.tasks, c.by, c.mpiSize, c.family,
				err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "/lib/libmpi.so, since of a test") {
			t.Errorf("%v does not name the library, and the reason", err)
		}
	}
}
