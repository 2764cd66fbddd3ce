package main

import (
	"strings"
	"testing"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/mpicache/transport/mpilib"
)

func TestWrongLaunch(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     place
		nodes  int
		family mpilib.Family
		verb   string
		want   string // "" for no error
	}{
		{"by hand", place{}, 0, "openmpi", "run", ""},
		{"one task", place{1, 0, 1, 0, bySrunPlain}, 4, "openmpi", "run", ""},
		{"one task a node", place{4, 0, 1, 0, bySrunPMIx}, 4, "openmpi", "run", ""},
		{"mpirun on a workstation", place{4, 0, 4, 0, byOpenMPI}, 0, "openmpi", "run", ""},
		{"mpirun in a job of one node", place{2, 0, 2, 0, byMPICH}, 1, "mpich", "serve", ""},
		{"no --mpi", place{4, 0, 1, 0, bySrunPlain}, 4, "openmpi", "run", "type \"srun -K --mpi=pmix rankpool run …\", or in the batch script \"rankpool run …\" without srun"},
		{"serve, no --mpi", place{4, 0, 1, 0, bySrunPlain}, 4, "openmpi", "serve", "type \"srun -K --mpi=pmix rankpool serve …\""},
		{"MPICH may find its way", place{4, 0, 1, 0, bySrunPlain}, 4, "mpich", "run", ""},
		{
			"the recommended form under srun",
			place{16, 5, 4, 1, bySrunPlain},
			4, "openmpi", "run",
			"type \"rankpool run …\" in the batch script, without srun, which starts 4 trainers a node, or \"srun -K --mpi=pmix --ntasks=4 --ntasks-per-node=1 rankpool run --trainers-per-rank 4 …\"",
		},
		{"two ranks on a node", place{4, 0, 2, 0, bySrunPMI2}, 2, "mpich", "serve", "type \"srun -K --mpi=pmi2 --ntasks=2 --ntasks-per-node=1 rankpool serve …\""},
		{"two on the only node", place{2, 0, 2, 0, bySrunPMIx}, 1, "openmpi", "serve", "--ntasks=1 --ntasks-per-node=1"},
		{"mpirun fills a node", place{4, 0, 4, 0, byOpenMPI}, 4, "openmpi", "run", "type \"mpirun --map-by ppr:1:node --bind-to none rankpool run --trainers-per-rank 4 …\""},
		{"hydra fills a node", place{4, 0, 2, 0, byMPICH}, 0, "mpich", "run", "type \"mpirun -ppn 1 -n 2 rankpool run --trainers-per-rank 2 …\""},
	} {
		err := wrongLaunch(c.at, c.nodes, c.family, c.verb)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestWrongCommand(t *testing.T) {
	for _, c := range []struct {
		command string
		tasks   int
		want    string
	}{
		{"python train.py", 4, ""},
		{"python -m train", 4, ""},
		{"torchrun --nproc-per-node 4 train.py", 1, ""},
		{"srun python train.py", 1, "leave srun out"},
		{"/usr/bin/mpirun -n 4 python train.py", 1, "leave mpirun out"},
		{"/opt/bin/torchrun train.py", 4, "#SBATCH --ntasks-per-node=1"},
		{"python -m torch.distributed.run train.py", 2, "torchrun starts the node's trainers itself: say #SBATCH --ntasks-per-node=1"},
		{"apptainer exec --nv x.sif deepspeed train.py", 2, "deepspeed starts"},
		{"accelerate config", 2, ""},
		{"python train.py -m torch.distributed.run", 2, ""},
	} {
		err := wrongCommand(strings.Fields(c.command), c.tasks)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || exit.Code(err) != exit.Misuse) {
			t.Errorf("%s, %d tasks: %v, want %q", c.command, c.tasks, err, c.want)
		}
	}
}

func TestWithoutGPUs(t *testing.T) {
	step := []string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0"}
	for _, c := range []struct {
		env    string
		denied int
		want   string
	}{
		{"", 0, ""},
		{"", 4, "#SBATCH --gpus-per-node=4"},
		{"SLURM_JOB_GPUS=0,1", 0, "srun --gpus-per-node=N"},
		{"SLURM_JOB_GPUS=0", 0, "srun --gpus-per-node=N"},
		{"SLURM_GPUS_PER_NODE=4 CUDA_VISIBLE_DEVICES=NoDevFiles", 3, "srun --gpus-per-node=N"},
		{"SLURM_JOB_GPUS=0,1 CUDA_VISIBLE_DEVICES=0", 0, ""},
		{"SLURM_JOB_GPUS=0,1 SLURM_GPUS_ON_NODE=2", 0, ""},
		{"SLURM_STEP_GPUS=0", 7, ""},
	} {
		got := withoutGPUs(env(append(strings.Fields(c.env), step...)...), c.denied, true)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q, %d denied: %q, want %q", c.env, c.denied, got, c.want)
		}
	}
	if got := withoutGPUs(env("SLURM_JOB_ID=1", "SLURM_JOB_GPUS=0"), 2, true); got != "" {
		t.Errorf("outside a step: %q", got)
	}
	got := withoutGPUs(env(append(step, "SLURM_JOB_GPUS=0")...), 0, false)
	if want := "the job has GPUs, but the training tasks have none: say #SBATCH --gpus-per-node=N"; got != want {
		t.Errorf("in the step that run starts: %q", got)
	}
}

func TestBoundToOneCore(t *testing.T) {
	for _, c := range []struct {
		by             string
		mayUse, onNode int
		warns          bool
	}{{byOpenMPI, 1, 8, true}, {byOpenMPI, 2, 8, false}, {byOpenMPI, 1, 1, false}, {byMPICH, 1, 8, false}} {
		if got := boundToOneCore(place{tasks: 2, by: c.by}, c.mayUse, c.onNode); (got != "") != c.warns {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestAllocatedNodes(t *testing.T) {
	if n := allocatedNodes(env("SLURM_JOB_NUM_NODES=4", "SLURM_STEP_NUM_NODES=2")); n != 4 {
		t.Errorf("in a step: %d", n)
	}
	if n := allocatedNodes(env()); n != 0 {
		t.Errorf("outside Slurm: %d", n)
	}
}

func TestMoreSteps(t *testing.T) {
	for list, want := range map[string]bool{
		"": false, "12.batch\n12.extern\n12.3\n": false, "12.3\n12.4\n": true, "12.0\n": true, "12_1.3": false,
	} {
		if got := moreSteps(list, "3"); got != want {
			t.Errorf("moreSteps(%q) = %v", list, got)
		}
	}
}
