package world

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"rankpool/slurm"
)

// OtherSteps reports whether the job has a running step besides this one, or may have.
func OtherSteps(ctx context.Context, job slurm.Job) bool {
	text, err := exec.CommandContext(ctx, "squeue", "--noheader", "--steps", "--jobs="+job.JobID,
		"--format=%i").Output()
	return err != nil || MoreSteps(string(text), job.StepID)
}

// MoreSteps reports whether a list of steps, one per line as in "12.0" or "12.batch", has a step of
// srun's other than own.
func MoreSteps(list, own string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(step string) bool {
		_, id, _ := strings.Cut(step, ".")
		_, err := strconv.Atoi(id)
		return err == nil && id != own
	})
}

// WithoutTaskOptions returns env without the batch script's options for its tasks, which srun would
// apply to steps of one task per node.
func WithoutTaskOptions(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(taskOptions, name)
	})
}

// taskOptions are what sbatch and users set and srun reads.
//
// Source: SchedMD, srun(1), INPUT ENVIRONMENT VARIABLES.
var taskOptions = []string{
	"SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
	"SLURM_GPU_BIND", "SLURM_GPU_FREQ",
	"SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET",
	"SLURM_NTASKS_PER_CORE", "SLURM_TRES_PER_TASK",
	"SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_THREADS_PER_CORE",
	"SLURM_HINT", "SLURM_DISTRIBUTION",
	"SLURM_CPU_BIND", "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_GRES", "SLURM_STEP_GRES",
}
