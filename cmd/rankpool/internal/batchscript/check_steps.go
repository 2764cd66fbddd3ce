package batchscript

import (
	"fmt"
	"slices"
	"strings"

	"rankpool/cmd/rankpool/internal/launchers"
)

// option returns the step's own option.
func (s *step) option(names ...string) (option, bool) { return find(s.options, names...) }

// tasksPerNode returns how many tasks of a step start on a node, 0 if the text does not show it.
func (j *job) tasksPerNode(s *step) int {
	switch own, _ := s.option("ntasks", "ntasks-per-node"); own.name {
	case "ntasks":
		return number(s.options, own.name) / max(number(s.options, "nodes"), j.request.nodes)
	case "ntasks-per-node":
		return number(s.options, own.name)
	}
	return j.request.tasks
}

// checkMPI looks for ranks that do not find each other, and for several of them on a node.
func (j *job) checkMPI() {
	want, _, _ := strings.Cut(j.facts.MPI, "_") // pmix_v4 is pmix
	for _, s := range j.calls("run", "stage", "pack", "index") {
		o, given := s.option("mpi")
		kind, _, _ := strings.Cut(o.value, "_")
		switch {
		case s.launcher == "" && s.tool == "stage" && j.request.nodes > 1:
			j.warn(s.line, "rankpool stage without srun copies to the first node alone",
				"write srun --mpi=pmix --ntasks-per-node=1 rankpool stage (pmi2 for MPICH)")
		case s.launcher != "srun":
		case !given && !j.assigned["SLURM_MPI_TYPE"]:
			j.warn(s.line, "this srun has no --mpi, so MPI does not start, or every rank is alone",
				"write srun --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH")
		case given && want != "" && kind != want:
			j.warn(s.line, fmt.Sprintf("--mpi=%s does not fit this machine's MPI library", o.value),
				"write srun --mpi="+want+", or load the MPI that it is for")
		}
		n := j.tasksPerNode(s)
		if s.launcher == "srun" && s.tool == "run" && n > 1 {
			j.warn(s.line, fmt.Sprintf("srun starts %d ranks on a node, and one is meant to be there", n),
				"write srun --ntasks-per-node=1, or call rankpool run without srun")
		}
	}
}

// checkTasks compares the training processes that start on a node with its GPUs and CPUs.
func (j *job) checkTasks() {
	for _, s := range j.calls("run", "join") {
		byTask := s.tool == "join" || s.launcher == "" && s.flag("ranks") == ""
		if byTask && len(s.training()) > 0 && s.wrong == nil {
			j.checkGPUs(s)
		}
	}
}

// checkGPUs checks a step whose tasks train, or start the training processes of their node.
//
// Source: SchedMD, sbatch(1), --cpus-per-task: by default one CPU a task is allocated.
func (j *job) checkGPUs(s *step) {
	gpus := j.request.gpus
	launcher, call := launcherOf(s.training())
	perNode := slices.ContainsFunc(call, func(word string) bool {
		name, _, _ := strings.Cut(strings.ReplaceAll(word, "_", "-"), "=")
		return name == "--nproc-per-node"
	})
	tasks := j.tasksPerNode(s)
	_, cpus := j.directive("cpus-per-task", "cpus-per-gpu", "exclusive", "mincpus")
	switch node := launcher != ""; {
	case tasks == 0 || !node && opaque(launchers.Unwrap(s.training())):
	case node && tasks > 1:
		j.warn(s.line, fmt.Sprintf("%s starts all training processes of a node, and would be started "+
			"%d times on each", launcher, tasks), "write #SBATCH --ntasks-per-node=1")
	case launcher == "torchrun" && gpus > 1 && !perNode && !j.assigned["PET_NPROC_PER_NODE"]:
		j.warn(s.line, fmt.Sprintf("torchrun without --nproc-per-node starts one training process a "+
			"node, beside %d GPUs", gpus), fmt.Sprintf("write torchrun --nproc-per-node=%d", gpus))
	case !node && tasks == 1 && gpus > 1:
		j.warn(s.line, fmt.Sprintf("one training process a node would start, beside %d GPUs", gpus),
			fmt.Sprintf("add #SBATCH --ntasks-per-node=%d, or start them with torchrun", gpus))
	case !node && gpus > 0 && tasks > gpus:
		j.warn(s.line, fmt.Sprintf("%d training processes a node would start, and share %d GPUs", tasks,
			gpus), fmt.Sprintf("write #SBATCH --ntasks-per-node=%d", gpus))
	case gpus > 0 && tasks > 1 && !cpus:
		j.warn(s.line, "each task may get one CPU, for training and its DataLoader workers",
			"add #SBATCH --cpus-per-task=N")
	}
}
