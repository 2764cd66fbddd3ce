package world

import (
	"slices"
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

func TestWrongLaunch(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     Place
		nodes  int
		family mpilib.Family
		want   string // "" for no error
	}{
		{"by hand", Place{}, 0, "openmpi", ""},
		{"one task", Place{1, 0, 1, 0, BySrunPlain}, 4, "openmpi", ""},
		{"one task a node", Place{4, 0, 1, 0, BySrunPMIx}, 4, "openmpi", ""},
		{"mpirun on a workstation", Place{4, 0, 4, 0, ByOpenMPI}, 0, "openmpi", ""},
		{"mpirun in a job of one node", Place{2, 0, 2, 0, ByMPICH}, 1, "mpich", ""},
		{"no --mpi", Place{4, 0, 1, 0, BySrunPlain}, 4, "openmpi", "type \"srun -K " +
			"--mpi=pmix rankpool run …\", or in the batch script \"rankpool run …\" without srun"},
		{"MPICH may find its way", Place{4, 0, 1, 0, BySrunPlain}, 4, "mpich", ""},
		{
			"the recommended form under srun",
			Place{16, 5, 4, 1, BySrunPlain},
			4, "openmpi",
			"type \"rankpool run …\" in the batch script, without srun, which starts 4 trainers " +
				"a node, or \"srun -K --mpi=pmix --ntasks=4 --ntasks-per-node=1 rankpool run " +
				"--trainers-per-rank 4 …\"",
		},
		{
			"two ranks on a node",
			Place{4, 0, 2, 0, BySrunPMI2},
			2, "mpich",
			"or \"srun -K --mpi=pmi2 --ntasks=2 --ntasks-per-node=1 rankpool run --trainers-per-rank 2 …\"",
		},
		{
			"two on the only node",
			Place{2, 0, 2, 0, BySrunPMIx},
			1, "openmpi",
			"--ntasks=1 --ntasks-per-node=1",
		},
		{
			"mpirun fills a node",
			Place{4, 0, 4, 0, ByOpenMPI},
			4, "openmpi",
			"type \"mpirun --map-by ppr:1:node --bind-to none rankpool run --trainers-per-rank 4 " +
				"…\"",
		},
		{
			"hydra fills a node",
			Place{4, 0, 2, 0, ByMPICH},
			0, "mpich",
			"type \"mpirun -ppn 1 -n 2 rankpool run --trainers-per-rank 2 …\"",
		},
	} {
		err := WrongLaunch(c.at, c.nodes, c.family)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestSlurmMPI(t *testing.T) {
	const debian = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n" +
		"specific pmix plugin versions available: pmix_v4\n"
	for _, c := range []struct {
		family     mpilib.Family
		list, want string
	}{
		{"", debian, "none"},
		{mpilib.OpenMPI, "", "pmix"},
		{mpilib.OpenMPI, debian, "pmix"},
		{mpilib.OpenMPI, "none pmix_v3 pmix_v4", "pmix_v4"},
		{mpilib.OpenMPI, "none pmi2", "pmi2"},
		{mpilib.MPICH, "", "pmi2"},
		{mpilib.MPICH, debian, "pmi2"},
		{mpilib.MPICH, "none, cray_shasta, pmix", "cray_shasta"},
		{mpilib.MPICH, "none, pmix", "pmix"},
		{mpilib.Other, debian, "pmix"},
	} {
		if got := SlurmMPI(c.family, c.list); got != c.want {
			t.Errorf("SlurmMPI(%q, %q) = %q, want %q", c.family, c.list, got, c.want)
		}
	}
}

func TestWithoutLaunch(t *testing.T) {
	env := []string{
		"OMPI_MCA_btl=tcp,self", "PMI_RANK=1", "PMIX_RANK=1", "SLURM_PROCID=1",
		"MPIR_CVAR_X=1", "HOME=/",
	}
	if got, want := WithoutLaunch(env),
		[]string{
			"OMPI_MCA_btl=tcp,self", "SLURM_PROCID=1", "MPIR_CVAR_X=1",
			"HOME=/",
		}; !slices.Equal(got, want) {
		t.Errorf("withoutLaunch = %q, want %q", got, want)
	}
	if got, want := WithoutLaunch(append(env, "OMPI_COMM_WORLD_SIZE=2"), "SLURM_"),
		[]string{"MPIR_CVAR_X=1", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("under mpirun: %q, want %q", got, want)
	}
}
