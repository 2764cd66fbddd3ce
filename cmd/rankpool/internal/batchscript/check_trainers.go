package batchscript

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"rankpool/cmd/rankpool/internal/launchers"
)

// launcherOf returns the launcher with which a command, or the text of its sh -c, starts all
// training processes of a node, and the words of its command; "" if there is none.
func launcherOf(command []string) (name string, call []string) {
	if name = launchers.Of(command); name != "" {
		return name, command
	}
	commands, _ := readCommands(shellText(command)) // use those before an error
	for _, c := range commands {
		if name = launchers.Of(c.Words); name != "" {
			return name, c.Words
		}
	}
	return "", nil
}

// shellText returns the text that a shell runs, as in sh -c TEXT, "" if there is none.
func shellText(command []string) string {
	command = launchers.Unwrap(command)
	if !opaque(command) {
		return ""
	}
	for i, word := range command[1:] {
		isOption := strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--")
		if isOption && strings.Contains(word, "c") && i+2 < len(command) {
			return command[i+2]
		}
		if !isOption && !strings.HasSuffix(command[i], "o") { // -o pipefail
			break
		}
	}
	return ""
}

// opaque reports whether a training command is a shell or a shell script, which may do anything.
func opaque(command []string) bool {
	if len(command) == 0 {
		return false
	}
	name := path.Base(command[0])
	return slices.Contains([]string{"sh", "bash", "dash", "zsh"}, name) ||
		strings.HasSuffix(name, ".sh")
}

// trains reports whether a command looks like training: a launcher of training processes, or
// Python.
func trains(command []string) bool {
	if name, _ := launcherOf(command); name != "" {
		return true
	}
	command = launchers.Unwrap(command)
	return len(command) > 0 && (launchers.IsPython(command[0]) || strings.HasSuffix(command[0], ".py"))
}

// checkTrainersPerNode compares the training processes that start on a node with its GPUs.
func (j *job) checkTrainersPerNode() {
	gpus := j.request.gpusPerNode
	for _, s := range j.steps {
		byTask := s.is("join") || s.is("run") && s.launcher == "" && s.tool.Flags["ranks"] == nil
		if !byTask || len(s.tool.Command) == 0 {
			continue
		}
		launcher, call := launcherOf(s.tool.Command)
		tasks, known := j.tasksPerNode(s)
		node := launcher != ""
		switch {
		case !known || !node && opaque(launchers.Unwrap(s.tool.Command)):
		case node && tasks > 1:
			j.warn(s.Line, fmt.Sprintf("%s starts all training processes of a node, and would be started "+
				"%d times on each", launcher, tasks),
				"write #SBATCH --ntasks-per-node=1")
		case launcher == "torchrun" && gpus > 1 && !hasFlag(call, "nproc-per-node") &&
			!j.assigned["PET_NPROC_PER_NODE"]:
			j.warn(s.Line, fmt.Sprintf("torchrun without --nproc-per-node starts one training process a "+
				"node, beside %d GPUs", gpus),
				fmt.Sprintf("write torchrun --nproc-per-node=%d", gpus))
		case !node && tasks <= 1 && gpus > 1:
			j.warn(s.Line, fmt.Sprintf("one training process a node would start, beside %d GPUs", gpus),
				fmt.Sprintf("add #SBATCH --ntasks-per-node=%d, or start them with torchrun", gpus))
		case !node && gpus > 0 && tasks > gpus:
			j.warn(s.Line, fmt.Sprintf("%d training processes a node would start, and share %d GPUs", tasks,
				gpus),
				fmt.Sprintf("write #SBATCH --ntasks-per-node=%d", gpus))
		}
	}
}

// hasFlag reports whether a command has one of several flags, whether their words are joined by -
// or _.
func hasFlag(command []string, flags ...string) bool {
	return slices.ContainsFunc(command, func(word string) bool {
		name, _, _ := strings.Cut(word, "=")
		return slices.Contains(flags, strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-"))
	})
}

// checkRendezvous looks for launchers that would train on every node separately. For torchrun,
// "rankpool run" in the batch shell and "rankpool join" prevent that.
func (j *job) checkRendezvous() {
	if j.request.nodes < 2 {
		return
	}
	for _, s := range j.steps {
		command, told := s.program, false
		if s.tool != nil {
			command, told = s.tool.Command, s.is("join") || s.launcher == ""
		}
		switch name, call := launcherOf(command); {
		case name == "torchrun" && hasFlag(call, "standalone"):
			j.warn(s.Line, "torchrun --standalone does not find the other nodes", "leave --standalone out")
		case name == "torchrun" && !told && !hasFlag(call, "nnodes") && !j.assigned["PET_NNODES"]:
			j.warn(s.Line, "torchrun without --nnodes trains on every node for itself",
				"call rankpool run without srun, or write srun rankpool join -- torchrun")
		case name == "accelerate" && !hasFlag(call, "num-machines", "config-file"):
			j.warn(s.Line, "accelerate without --num_machines trains on every node for itself",
				"add --num_machines, --machine_rank and --main_process_ip, or --config_file")
		case name == "deepspeed" && !hasFlag(call, "hostfile", "H"):
			j.warn(s.Line, "deepspeed without --hostfile trains on every node for itself",
				"leave deepspeed out, with a task for each GPU, or name the nodes with --hostfile")
		}
	}
}
