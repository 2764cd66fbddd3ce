package world

import (
	"strings"
	"testing"

	"rankpool/mpicache/transport/mpilib"
)

func TestWrongLaunch(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     Place
		nodes  int
		family mpilib.Family
		verb   string
		want   string // "" for no error
	}{
		{"by hand", Place{}, 0, "openmpi", "run", ""},
		{"one task", Place{1, 0, 1, 0, BySrunPlain}, 4, "openmpi", "run", ""},
		{"one task a node", Place{4, 0, 1, 0, BySrunPMIx}, 4, "openmpi", "run", ""},
		{"mpirun on a workstation", Place{4, 0, 4, 0, ByOpenMPI}, 0, "openmpi", "run", ""},
		{"mpirun in a job of one node", Place{2, 0, 2, 0, ByMPICH}, 1, "mpich", "serve", ""},
		{"no --mpi", Place{4, 0, 1, 0, BySrunPlain}, 4, "openmpi", "run", "type \"srun -K " +
			"--mpi=pmix rankpool run …\", or in the batch script \"rankpool run …\" without srun"},
		{
			"serve, no --mpi",
			Place{4, 0, 1, 0, BySrunPlain},
			4, "openmpi", "serve",
			"type \"srun -K --mpi=pmix rankpool serve …\"",
		},
		{"MPICH may find its way", Place{4, 0, 1, 0, BySrunPlain}, 4, "mpich", "run", ""},
		{
			"the recommended form under srun",
			Place{16, 5, 4, 1, BySrunPlain},
			4, "openmpi", "run",
			"type \"rankpool run …\" in the batch script, without srun, which starts 4 trainers " +
				"a node, or \"srun -K --mpi=pmix --ntasks=4 --ntasks-per-node=1 rankpool run " +
				"--trainers-per-rank 4 …\"",
		},
		{
			"two ranks on a node",
			Place{4, 0, 2, 0, BySrunPMI2},
			2, "mpich", "serve",
			"type \"srun -K --mpi=pmi2 --ntasks=2 --ntasks-per-node=1 rankpool serve …\"",
		},
		{
			"two on the only node",
			Place{2, 0, 2, 0, BySrunPMIx},
			1, "openmpi", "serve",
			"--ntasks=1 --ntasks-per-node=1",
		},
		{
			"mpirun fills a node",
			Place{4, 0, 4, 0, ByOpenMPI},
			4, "openmpi", "run",
			"type \"mpirun --map-by ppr:1:node --bind-to none rankpool run --trainers-per-rank 4 " +
				"…\"",
		},
		{
			"hydra fills a node",
			Place{4, 0, 2, 0, ByMPICH},
			0, "mpich", "run",
			"type \"mpirun -ppn 1 -n 2 rankpool run --trainers-per-rank 2 …\"",
		},
	} {
		err := WrongLaunch(c.at, c.nodes, c.family, c.verb)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestAllocatedNodes(t *testing.T) {
	if n := AllocatedNodes(env("SLURM_JOB_NUM_NODES=4", "SLURM_STEP_NUM_NODES=2")); n != 4 {
		t.Errorf("in a step: %d", n)
	}
	if n := AllocatedNodes(env()); n != 0 {
		t.Errorf("outside Slurm: %d", n)
	}
}

func TestMoreSteps(t *testing.T) {
	for list, want := range map[string]bool{
		"": false, "12.batch\n12.extern\n12.3\n": false, "12.3\n12.4\n": true, "12.0\n": true,
		"12_1.3": false,
	} {
		if got := MoreSteps(list, "3"); got != want {
			t.Errorf("moreSteps(%q) = %v", list, got)
		}
	}
}
