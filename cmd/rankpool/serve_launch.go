package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
)

// joinCache joins the other ranks of the cache, or stands alone. byHand says that no "rankpool run" started this rank, so that nobody else
// says what is wrong with the launch. world is the number of ranks that "rankpool run" has launched, 0 by hand: there are launchers that
// tell a process nothing of its place.
func joinCache(options mpiOptions, world int, byHand bool) (transport.Transport, error) {
	at := findPlace(os.Getenv)
	if at.tasks <= 1 && world > 1 {
		at.tasks, at.by = world, byRun
	}
	if at.tasks <= 1 {
		return transport.NewLocal(1)[0], nil
	}
	library, err := options.load()
	if err == nil {
		err = wrongLaunch(at, allocatedNodes(os.Getenv), library.Family, "serve")
	}
	if err != nil {
		return nil, onceForAll(at, err)
	}
	if remedy := launcherOf(library, at.by); byHand && library.Family == mpilib.OpenMPI && remedy != "" {
		warnTask(at.task, "should MPI fail now: "+remedy) // it ends the process
	}
	transport, err := startMPI(at, library)
	if err == nil && world > 1 {
		err = checkWorld(world, byRun, transport.Size(), library)
	}
	if err != nil {
		return nil, onceForAll(at, err)
	}
	return transport, nil
}

// openTransport joins the other tasks, or stands alone: a task alone needs no MPI, and Open MPI would end it where srun does not offer
// the PMI that it wants.
func openTransport(options mpiOptions) (transport.Transport, error) {
	at := findPlace(os.Getenv)
	if at.tasks <= 1 {
		return transport.NewLocal(1)[0], nil
	}
	library, err := options.load()
	if err != nil {
		return nil, onceForAll(at, err)
	}
	return startMPI(at, library)
}

// startMPI starts the loaded library, and checks that it sees the tasks of the launch.
func startMPI(at place, library transport.Library) (transport.Transport, error) {
	transport, err := transport.NewMPI()
	if err != nil {
		return nil, err
	}
	return transport, checkWorld(at.tasks, at.by, transport.Size(), library)
}

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
	if !job.InStep() || job.NodeName == "" || otherSteps(ctx, job) {
		return
	}
	probe := exec.CommandContext(ctx, "srun", fmt.Sprintf("--immediate=%d", int(probePatience.Seconds())), "--nodes=1", "--ntasks=1",
		"--nodelist="+job.NodeName, "--mem=0", "--mpi=none", "--gres=none", "--input=none", "--job-name=rankpool-probe", "true")
	probe.Env = withoutTaskOptions(withoutLaunch(os.Environ(), "SLURM_STEP_", "SLURM_STEPID", "SLURM_MPI"))
	text, err := probe.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "busy") || otherSteps(ctx, job) {
		return // what else may go wrong is no proof
	}
	blocks <- errBlocks
}

// cancelStep says why and ends this step, all its ranks, since without it they would end with the job. The error is bare: Slurm may
// end this process before it can say anything more.
func cancelStep(job slurm.Job, why error) error {
	exit.Print(os.Stderr, why)
	_ = exec.Command("scancel", job.JobID+"."+job.StepID).Run() // the step is ended by hand where it fails
	return &exit.Status{Code: exit.Failure}
}

// otherSteps reports whether the job has a running step besides this one, or may have.
func otherSteps(ctx context.Context, job slurm.Job) bool {
	text, err := exec.CommandContext(ctx, "squeue", "--noheader", "--steps", "--jobs="+job.JobID, "--format=%i").Output()
	return err != nil || moreSteps(string(text), job.StepID)
}

// moreSteps reports whether a list of steps, as "12.0" or "12.batch" a line, has one of srun's besides own.
func moreSteps(list, own string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(step string) bool {
		_, id, _ := strings.Cut(step, ".")
		_, err := strconv.Atoi(id)
		return err == nil && id != own
	})
}
