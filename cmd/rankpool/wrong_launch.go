package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/launchers"
	"rankpool/cmd/rankpool/internal/outlet"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
)

// wrongLaunch returns what is wrong with the launch of "rankpool run" or "rankpool serve" (verb), with the line to type, as far as that is
// known before MPI is started; nil where nothing is. nodes is the size of the allocation, 0 outside Slurm.
//
// Two ranks on one machine are wrong only where there are several machines, or where Slurm has started them: elsewhere it is a way to try.
func wrongLaunch(at place, nodes int, family mpilib.Family, verb string) error {
	switch {
	case at.tasks <= 1:
		return nil
	case at.localTasks > 1 && (at.bySrun() || nodes > 1 || at.localTasks < at.tasks):
		return fmt.Errorf("%s started %d tasks on this node, and a node has one rank: %s", at.by, at.localTasks, oneRank(at, nodes, family, verb))
	case family == mpilib.OpenMPI && at.by == bySrunPlain:
		return fmt.Errorf("%s started %d tasks, which cannot find each other: type \"srun -K --mpi=pmix rankpool %s …\"%s",
			at.by, at.tasks, verb, orWithoutSrun(verb))
	}
	return nil
}

// checkLaunch validates how run was launched, and what it is to launch. One task speaks for all.
func (o *runOptions) checkLaunch(job slurm.Job, f form, at place) error {
	err := wrongLaunch(at, allocatedNodes(os.Getenv), o.library.Family, "run")
	if err == nil && f == formTask {
		err = checkRendezvous(at, job, os.Getenv)
	}
	if err == nil && f == formSlurm && len(o.command) > 0 {
		err = wrongCommand(o.command, job.LocalTasks)
	}
	if err != nil {
		return onceForAll(at, err)
	}
	warnTask(at.task, otherComponents(job))
	if f == formTask {
		warnTask(at.task, withoutGPUs(os.Getenv, deniedGPUs(), true), boundToOneCore(at, runtime.NumCPU(), onlineCPUs()))
	}
	return err
}

// onceForAll returns the error of all tasks at the first one, and leaves it to that at the others.
func onceForAll(at place, err error) error {
	if at.task > 0 {
		return firstSpeaks()
	}
	return err
}

// firstSpeaks returns the error of a task that leaves it to the first one to say what is wrong with all. It gives that one time:
// mpirun ends all tasks, and drops what they have said, when one fails.
func firstSpeaks() error {
	time.Sleep(2 * time.Second)
	return &exit.Status{Code: exit.Failure}
}

// onlineCPUs returns the number of the machine's CPUs, also of those that this process may not use.
func onlineCPUs() int {
	cpus, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*") // the pattern is well formed
	return len(cpus)
}

// oneRank returns the line to type for one rank a node.
func oneRank(at place, nodes int, family mpilib.Family, verb string) string {
	line := ""
	switch at.by {
	case byOpenMPI:
		line = fmt.Sprintf("mpirun --map-by ppr:1:node --bind-to none rankpool %s", verb)
	case byMPICH:
		line = fmt.Sprintf("mpirun -ppn 1 -n %d rankpool %s", max(nodes, at.tasks/at.localTasks), verb)
	default:
		line = fmt.Sprintf("srun -K --mpi=%s --ntasks=%d --ntasks-per-node=1 rankpool %s", slurmMPI(family, ""), max(1, nodes), verb)
	}
	if verb == "run" {
		line += fmt.Sprintf(" --trainers-per-rank %d", at.localTasks)
	}
	if !at.bySrun() || verb != "run" {
		return fmt.Sprintf("type %q", line+" …")
	}
	return fmt.Sprintf("type \"rankpool run …\" in the batch script, without srun, which starts %d trainers a node, or %q", at.localTasks, line+" …")
}

func orWithoutSrun(verb string) string {
	if verb != "run" {
		return ""
	}
	return ", or in the batch script \"rankpool run …\" without srun"
}

// wrongCommand returns what is wrong with the training command of a batch script, which the launcher itself starts by srun, once a task;
// nil where nothing is known to be.
func wrongCommand(command []string, tasksPerNode int) error {
	name, launcher := filepath.Base(command[0]), launchers.Of(command)
	switch {
	case launchers.StartsTasks(name):
		return exit.Usagef("run starts the training command by srun itself: leave %s out, as in \"rankpool run … -- python train.py\"; what it was to be told belongs into #SBATCH lines", name)
	case tasksPerNode > 1 && launcher != "":
		return exit.Usagef("the batch script asks for %d tasks a node, and %s starts the node's trainers itself: say #SBATCH --ntasks-per-node=1", tasksPerNode, launcher)
	}
	return nil
}

// withoutGPUs returns what to say about a training task that has no GPU; "" where it has one, or where nothing shows that it should.
// denied is the number of the node's GPUs that it may not open; byHand says that the user's own srun has started it.
func withoutGPUs(getenv func(string) string, denied int, byHand bool) string {
	has := func(none []string, names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(none, getenv(name)) })
	}
	noDevice, noNumber := []string{"", "-1", "NoDevFiles"}, []string{"", "0"}
	switch {
	case !slurm.Detect(getenv).InStep(),
		has(noDevice, "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_STEP_GPUS"), has(noNumber, "SLURM_GPUS_ON_NODE"):
		return ""
	case has(noDevice, "SLURM_JOB_GPUS"), has(noNumber, "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK"):
		remedy := "say #SBATCH --gpus-per-node=N"
		if byHand {
			remedy = "start their step with \"srun --gpus-per-node=N\" (and without --gres=none)"
		}
		return "the job has GPUs, but the training tasks have none: " + remedy
	case denied > 0:
		return fmt.Sprintf("the node has %d GPUs, and the job did not ask for any: say #SBATCH --gpus-per-node=%d", denied, denied)
	}
	return ""
}

// deniedGPUs returns how many of the node's NVIDIA GPUs this process may not open: those that Slurm keeps for other jobs.
func deniedGPUs() int {
	devices, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is well formed
	denied := 0
	for _, device := range devices {
		fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
		switch err {
		case nil:
			_ = unix.Close(fd) // it only had to open
		case unix.EPERM:
			denied++
		}
	}
	return denied
}

// boundToOneCore returns what to say about a task that its launcher has bound to one core of several; "" where it is not.
//
// Source: measured: Open MPI's mpirun does so up to two ranks, and trainers that a bound process starts all share its core.
func boundToOneCore(at place, mayUse, onNode int) string {
	if at.by != byOpenMPI || mayUse > 1 || onNode <= 1 {
		return ""
	}
	return fmt.Sprintf("mpirun has bound this task, and so its trainers, to one of the node's %d cores: type \"mpirun --bind-to none …\"", onNode)
}

// allocatedNodes returns the size of the allocation, also within a smaller step, 0 outside Slurm.
func allocatedNodes(getenv func(string) string) int {
	withoutStep := func(name string) string {
		if strings.HasPrefix(name, "SLURM_STEP_") {
			return ""
		}
		return getenv(name)
	}
	return max(0, slurm.Detect(withoutStep).Nodes)
}

// warnTask says what the first task's environment shows to be amiss, once for all tasks.
func warnTask(task int, warnings ...string) {
	for _, w := range warnings {
		if task == 0 && w != "" {
			fmt.Fprintln(outlet.Stderr, "rankpool:", w)
		}
	}
}
