package launch

import (
	"strings"
	"testing"

	"rankpool/cmd/internal/exit"
	"rankpool/slurm"
)

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
		{
			"python -m torch.distributed.run train.py", 2,
			"torchrun starts the node's trainers itself: use #SBATCH --ntasks-per-node=1",
		},
		{"apptainer exec --nv x.sif deepspeed train.py", 2, "deepspeed starts"},
		{"accelerate config", 2, ""},
		{"python train.py -m torch.distributed.run", 2, ""},
	} {
		err := WrongCommand(strings.Fields(c.command), c.tasks)
		if (err == nil) != (c.want == "") ||
			err != nil && (!strings.Contains(err.Error(), c.want) ||
				exit.Code(err) != exit.Misuse) {
			t.Errorf("%s, %d tasks: %v, want %q", c.command, c.tasks, err, c.want)
		}
	}
}

func TestWithoutGPUs(t *testing.T) {
	step := []string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0"}
	for _, c := range []struct {
		env  string
		want string
	}{
		{"", ""},
		{"SLURM_JOB_GPUS=0,1", "srun --gpus-per-node=N"},
		{"SLURM_JOB_GPUS=0", "srun --gpus-per-node=N"},
		{"SLURM_GPUS_PER_NODE=4 CUDA_VISIBLE_DEVICES=NoDevFiles", "srun --gpus-per-node=N"},
		{"SLURM_JOB_GPUS=0,1 CUDA_VISIBLE_DEVICES=0", ""},
		{"SLURM_JOB_GPUS=0,1 SLURM_GPUS_ON_NODE=2", ""},
		{"SLURM_STEP_GPUS=0", ""},
	} {
		got := withoutGPUs(env(append(strings.Fields(c.env), step...)...), true)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q: %q, want %q", c.env, got, c.want)
		}
	}
	if got := withoutGPUs(env("SLURM_JOB_ID=1", "SLURM_JOB_GPUS=0"), true); got != "" {
		t.Errorf("outside a step: %q", got)
	}
	got := withoutGPUs(env(append(step, "SLURM_JOB_GPUS=0")...), false)
	want := "the job has GPUs, but the training tasks have none: use #SBATCH --gpus-per-node=N"
	if got != want {
		t.Errorf("in the step that run starts: %q", got)
	}
}

// TestNoSrun checks what a job of Slurm is told where there is no srun, as in a container.
func TestNoSrun(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for nodes, want := range map[int]string{
		1: `on one node "rankpool run --ranks 1" works`,
		2: "call rankpool outside of it",
	} {
		err := (&Options{}).checkMachine(slurm.Job{JobID: "7", Nodes: nodes}, formSlurm)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d nodes: %v, want %q", nodes, err, want)
		}
	}
}
