package batchscript

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// launchesNode reports whether a training command starts all training processes of a node itself.
func launchesNode(command []string) bool {
	for i, word := range command {
		switch path.Base(word) {
		case "torchrun", "accelerate", "deepspeed", "horovodrun":
			return true
		case "torch.distributed.run", "torch.distributed.launch":
			return i > 0 && command[i-1] == "-m"
		}
	}
	return false
}

// opaque reports whether a training command is a shell's, in which anything may happen.
func opaque(command []string) bool {
	name := path.Base(command[0])
	return slices.Contains([]string{"sh", "bash", "dash", "zsh"}, name) || strings.HasSuffix(name, ".sh")
}

// checkTrainersPerNode compares the training processes that start on a node with its GPUs.
func (j *job) checkTrainersPerNode() {
	gpus := j.request.gpusPerNode
	for _, s := range j.steps {
		byTask := s.is("join") || s.is("run") && s.launcher == "" && s.tool.Flags["ranks"] == nil
		if !byTask || len(s.tool.Command) == 0 || opaque(s.tool.Command) {
			continue
		}
		tasks := j.request.tasksPerNode
		if s.launcher != "" {
			tasks = j.tasksPerNode(s)
		}
		program := path.Base(s.tool.Command[0])
		node := launchesNode(s.tool.Command)
		switch {
		case node && tasks > 1:
			j.warn(s.Line, fmt.Sprintf("%s starts all training processes of a node, and would be started %d times on each", program, tasks),
				"write #SBATCH --ntasks-per-node=1")
		case program == "torchrun" && gpus > 1 && !hasFlag(s.tool.Command, "nproc-per-node") && !j.assigned["PET_NPROC_PER_NODE"]:
			j.warn(s.Line, fmt.Sprintf("torchrun without --nproc-per-node starts one training process a node, beside %d GPUs", gpus),
				fmt.Sprintf("write torchrun --nproc-per-node=%d", gpus))
		case !node && tasks <= 1 && gpus > 1:
			j.warn(s.Line, fmt.Sprintf("one training process a node would start, beside %d GPUs", gpus),
				fmt.Sprintf("add #SBATCH --ntasks-per-node=%d, or start them with torchrun", gpus))
		case !node && gpus > 0 && tasks > gpus:
			j.warn(s.Line, fmt.Sprintf("%d training processes a node would start, and share %d GPUs", tasks, gpus),
				fmt.Sprintf("write #SBATCH --ntasks-per-node=%d", gpus))
		}
	}
}

// hasFlag reports whether a command has one of several flags, however their words are joined (--a-b, --a_b).
func hasFlag(command []string, flags ...string) bool {
	return slices.ContainsFunc(command, func(word string) bool {
		name, _, _ := strings.Cut(word, "=")
		return slices.Contains(flags, strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-"))
	})
}

// checkRendezvous looks for launchers that would train on every node for themselves. For torchrun, "rankpool run" in the
// batch shell and "rankpool join" see to that.
func (j *job) checkRendezvous() {
	if j.request.nodes < 2 {
		return
	}
	for _, s := range j.steps {
		command, told := s.program, false
		if s.tool != nil {
			command, told = s.tool.Command, s.is("join") || s.launcher == ""
		}
		for i, word := range command {
			name := path.Base(word)
			torch := name == "torchrun" || name == "torch.distributed.run" && i > 0 && command[i-1] == "-m"
			switch {
			case torch && !told && !hasFlag(command, "nnodes") && !j.assigned["PET_NNODES"]:
				j.warn(s.Line, "torchrun without --nnodes trains on every node for itself",
					"call rankpool run without srun, or write srun rankpool join -- torchrun")
			case name == "accelerate" && !hasFlag(command, "num-machines", "config-file"):
				j.warn(s.Line, "accelerate without --num_machines trains on every node for itself",
					"add --num_machines, --machine_rank and --main_process_ip, or --config_file")
			}
		}
	}
}
