package rank

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/slurm"
)

const (
	// trainingBegins is how long the training step may take to appear before this step is suspected
	// of blocking it.
	trainingBegins = 5 * time.Second

	// probePatience is how long a step of one task may wait for resources before they count as
	// unavailable.
	probePatience = time.Second
)

// watchForBlock finds out whether another step of the job can start beside this one. Rank 0 of a
// cache that was started by hand does this if no step has: it tries to start one, as small as
// possible. If that fails, blocks gets an error.
func watchForBlock(ctx context.Context, job slurm.Job, blocks chan<- error) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(trainingBegins):
	}
	if !job.InStep() || job.NodeName == "" || world.OtherSteps(ctx, job) {
		return
	}
	probe := exec.CommandContext(ctx, "srun",
		fmt.Sprintf("--immediate=%d", int(probePatience.Seconds())), "--nodes=1", "--ntasks=1",
		"--nodelist="+job.NodeName, "--mem=0", "--mpi=none", "--gres=none", "--input=none",
		"--job-name=rankpool-probe", "true")
	probe.Env = world.WithoutTaskOptions(
		world.WithoutLaunch(os.Environ(), "SLURM_STEP_", "SLURM_STEPID", "SLURM_MPI"))
	text, err := probe.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "busy") || world.OtherSteps(ctx, job) {
		return // other failures prove nothing
	}
	blocks <- errors.New(
		"this step keeps the training step waiting: start both with \"srun --overlap\"")
}

// cancelStep reports why and cancels this step with all its ranks, since otherwise they would run
// until the job ends. The error is bare: Slurm may end this process before it can print more.
func cancelStep(job slurm.Job, why error) error {
	exit.Print(os.Stderr, why)
	// if this fails, the user must end the step
	_ = exec.Command("scancel", job.JobID+"."+job.StepID).Run()
	return &exit.StatusError{Code: exit.Failure}
}
