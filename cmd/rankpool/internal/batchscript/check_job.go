package batchscript

import (
	"fmt"
	"slices"
	"strings"

	"rankpool/slurm"
)

// checkMemory compares the cache's memory with the job's.
func (j *job) checkMemory() {
	mem, given := j.directive("mem", "mem-per-cpu", "mem-per-gpu")
	have := int64(0) // of each node; 0: not known, or everything the node has
	if mem.name == "mem" {
		have, _ = slurm.Size(mem.value)
	}
	for _, s := range j.calls("run") {
		memory := s.flag("memory")
		if memory == "" || strings.ContainsAny(memory, "$`") {
			continue
		}
		bytes, err := j.facts.Size(memory)
		switch {
		case err != nil:
			j.warn(s.line, fmt.Sprintf("rankpool refuses --memory: %v", err),
				"write a size such as 64GiB, a share such as 20%, or auto")
		case have > 0 && bytes >= have:
			j.warn(s.line, fmt.Sprintf("--memory %s leaves nothing of the job's memory, %.4g GiB a node, "+
				"to training", memory, float64(have)/(1<<30)),
				"raise #SBATCH --mem, or ask for less with --memory")
		case (bytes > 0 || memory == "auto") && !given:
			j.warn(s.line, fmt.Sprintf("--memory %s without #SBATCH --mem: the job has the "+
				"partition's default, also with --exclusive", memory),
				"add #SBATCH --mem=SIZE, or --mem=0 for all of a node's")
		}
	}
}

// checkSignal looks for an early signal to the batch shell (B:) that nothing in the script handles,
// and for jobs that start over, or not at all, when they are requeued.
func (j *job) checkSignal() {
	sig, found := j.directive("signal")
	target, _, _ := strings.Cut(sig.value, ":")
	handled := slices.ContainsFunc(j.commands, func(c command) bool {
		return c.calls("trap") || c.calls("exec") && len(c.words) > 1
	})
	if found && target == "B" && !handled && len(j.steps) > 0 {
		j.warn(sig.line, "the batch shell gets the signal (B:), ends of it, and training with it",
			"write exec before rankpool run, as the script's last line, or handle the signal with trap")
	}
	for _, s := range j.calls("run") {
		if value := s.flag("requeue"); value == "" || value == "false" {
			continue
		}
		if !found && s.launcher == "" {
			j.warn(s.line, "rankpool run --requeue waits for a signal before the job ends, and the script "+
				"asks for none", "add #SBATCH --signal=B:USR1@120")
		}
		if s.flag("state") == "" {
			j.warn(s.line, "a requeued job begins without the importance scores, because there "+
				"is no --state", "add --state FILE, on shared storage")
		}
	}
}
