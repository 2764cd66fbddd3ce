package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/launchers"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/slurm"
)

// checkLaunch validates how run was launched, and what it will launch. Only one task reports an
// error.
func (o *Options) checkLaunch(job slurm.Job, f form, at world.Place) error {
	err := world.WrongLaunch(at, slurm.AllocatedNodes(os.Getenv), o.library.Family)
	if err == nil && f == formTask {
		err = checkRendezvous(at, job, os.Getenv)
	}
	if err == nil && f != formLocal && len(o.Command) > 0 {
		tasks := job.LocalTasks
		if f == formTask {
			tasks = 1 // run starts its trainers here
		}
		err = WrongCommand(o.Command, tasks)
	}
	if err != nil {
		return world.OnceForAll(at, err)
	}
	if f == formTask {
		world.WarnTask(at.Task, withoutGPUs(os.Getenv, true))
	}
	return err
}

// checkFiles returns an error if there is no folder for what the flags name, or if the state is a
// device or a FIFO, since reading one may never end. In a job, a folder for the tier may be one of
// the nodes' alone.
func (o *Options) checkFiles(inJob bool) error {
	for _, given := range [][2]string{
		{"--state", o.cache.State}, {"--log", o.cache.Log}, {"--tier", o.cache.Tier},
	} {
		flag, path := given[0], given[1]
		dir := filepath.Dir(path)
		if flag == "--tier" {
			tier, _ := rank.FindTier(path) // checked before
			dir = tier.Dir
		}
		if path == "" || flag == "--tier" && inJob {
			continue
		}
		if _, err := os.Stat(dir); dir != "" && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: folder %s does not exist: create it, or name another one", flag, dir)
		}
	}
	// other errors are reported when the file is used
	if regular, err := rank.IsRegular(o.cache.State); err == nil && !regular {
		return fmt.Errorf("--state %s is not a regular file: name another one", o.cache.State)
	}
	return nil
}

// isAgent reports whether a training command is torchrun. torchrun starts the trainers, recent
// versions each in its own session, and dies of SIGUSR1 and SIGUSR2, which sbatch --signal sends to
// every process of a step. So join ignores both before it becomes torchrun; trainers inherit that,
// and can still install handlers.
//
// Source: PyTorch, issue 154849; torch/distributed/elastic/multiprocessing/api.py.
func isAgent(argv []string) bool { return launchers.Of(argv) == "torchrun" }

// WrongCommand returns an error if the training command of a job, which run starts once per task,
// is wrong.
func WrongCommand(command []string, tasksPerNode int) error {
	name, launcher := filepath.Base(command[0]), launchers.Of(command)
	switch {
	case launchers.StartsTasks(name):
		return exit.Usagef("run starts the training command on each node itself: leave %s out, as in "+
			"\"rankpool run … -- python train.py\"; its options belong in #SBATCH "+
			"lines", name)
	case tasksPerNode > 1 && launcher != "":
		return exit.Usagef("the batch script asks for %d tasks a node, and %s starts the node's "+
			"trainers itself: use #SBATCH --ntasks-per-node=1", tasksPerNode, launcher)
	}
	return nil
}

// withoutGPUs returns a message about a training task that has no GPU, or "" if it has one or
// nothing shows that it should. byHand is set if the user's own srun started it.
func withoutGPUs(getenv func(string) string, byHand bool) string {
	has := func(none []string, names ...string) bool {
		return slices.ContainsFunc(names,
			func(name string) bool { return !slices.Contains(none, getenv(name)) })
	}
	noDevice, noNumber := []string{"", "-1", "NoDevFiles"}, []string{"", "0"}
	switch {
	case !slurm.Detect(getenv).InStep(),
		has(noDevice, "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_STEP_GPUS"),
		has(noNumber, "SLURM_GPUS_ON_NODE"):
		return ""
	case has(noDevice, "SLURM_JOB_GPUS"),
		has(noNumber, "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK"):
		remedy := "use #SBATCH --gpus-per-node=N"
		if byHand {
			remedy = "start their step with \"srun --gpus-per-node=N\" (and without --gres=none)"
		}
		return "the job has GPUs, but the training tasks have none: " + remedy
	}
	return ""
}
