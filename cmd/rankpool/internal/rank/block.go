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
	// trainingBegins is how long the training step may take to show itself before this one is suspected to block it.
	trainingBegins = 5 * time.Second

	// probePatience is how long a step of one task may wait for resources before they count as taken.
	probePatience = time.Second
)

// errBlocks is the error of a step that no other step of the job can start beside.
var errBlocks = errors.New("this step keeps the training step waiting: start both with \"srun --overlap\"")

// watchForBlock finds out whether another step of the job can start beside this one, which rank 0 of a cache that was started by hand
// asks when none has: it tries to start one, as small as may be. When it cannot, blocks gets errBlocks.
func watchForBlock(ctx context.Context, job slurm.Job, blocks chan<- error) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(trainingBegins):
	}
	if !job.InStep() || job.NodeName == "" || world.OtherSteps(ctx, job) {
		return
	}
	probe := exec.CommandContext(ctx, "srun", fmt.Sprintf("--immediate=%d", int(probePatience.Seconds())), "--nodes=1", "--ntasks=1",
		"--nodelist="+job.NodeName, "--mem=0", "--mpi=none", "--gres=none", "--input=none", "--job-name=rankpool-probe", "true")
	probe.Env = world.WithoutTaskOptions(world.WithoutLaunch(os.Environ(), "SLURM_STEP_", "SLURM_STEPID", "SLURM_MPI"))
	text, err := probe.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "busy") || world.OtherSteps(ctx, job) {
		return // what else may go wrong is no proof
	}
	blocks <- errBlocks
}

// cancelStep says why and ends this step, all its ranks, since without it they would end with the job. The error is bare: Slurm may
// end this process before it can say anything more.
func cancelStep(job slurm.Job, why error) error {
	exit.Print(os.Stderr, why)
	_ = exec.Command("scancel", job.JobID+"."+job.StepID).Run() // the step is ended by hand where it fails
	return &exit.StatusError{Code: exit.Failure}
}
