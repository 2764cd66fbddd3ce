package batchscript

import (
	"fmt"
	"slices"
	"strings"
)

// rankCommands are the subcommands whose tasks join over MPI when srun or mpirun starts several.
var rankCommands = []string{"serve", "run", "stage", "pack", "index"}

// option returns the step's own option.
func (s *step) option(names ...string) (Option, bool) { return find(s.options, names...) }

// tasksPerNode returns how many tasks of a step start on a node, unless the text does not show it.
func (j *job) tasksPerNode(s *step) (tasks int, known bool) {
	tasks = max(1, j.request.tasksPerNode)
	if s.launcher == "" {
		return tasks, true
	}
	nodes, _, known := j.stepNumber(s, "nodes", j.request.nodes)
	if perNode, given, known := j.stepNumber(s, "ntasks-per-node", tasks); given {
		return perNode, known
	}
	all, given, knownAll := j.stepNumber(s, "ntasks", tasks)
	if !given {
		return tasks, true
	}
	return (all + nodes - 1) / nodes, known && knownAll
}

// stepNumber returns a number from srun's options, or else the default. It is unknown if it is in a
// variable of the script.
func (j *job) stepNumber(s *step, option string, otherwise int) (n int, given, known bool) {
	o, given := s.option(option)
	switch strings.Trim(o.Value, "${}") {
	case "SLURM_NNODES", "SLURM_JOB_NUM_NODES":
		return j.request.nodes, given, true
	case "SLURM_NTASKS_PER_NODE":
		return max(1, j.request.tasksPerNode), given, true
	case "SLURM_NTASKS", "SLURM_NPROCS":
		return max(1, j.request.tasksPerNode) * j.request.nodes, given, true
	}
	if n := number(s.options, option); n > 0 {
		return n, given, true
	}
	return otherwise, given, !strings.ContainsAny(o.Value, "$`")
}

// checkMPI compares --mpi with what this machine's MPI library needs.
func (j *job) checkMPI() {
	for _, s := range j.calls(rankCommands...) {
		if s.launcher != "srun" {
			continue
		}
		o, given := s.option("mpi")
		kind, _, _ := strings.Cut(o.Value, "_") // pmix_v4 is pmix
		want, _, _ := strings.Cut(j.facts.MPI, "_")
		switch {
		case !given && !j.assigned["SLURM_MPI_TYPE"]:
			advice := "write srun --mpi=" + want
			if want == "" {
				advice = "write srun --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH"
			}
			j.warn(s.Line, s.title()+" has no --mpi, so MPI does not start, or every rank is alone", advice)
		case given && want != "" && kind != want:
			j.warn(s.Line, fmt.Sprintf("--mpi=%s does not fit this machine's MPI library", shorten(o.Value)),
				"write srun --mpi="+want+", or load the MPI that it is for")
		}
	}
}

// checkRanksPerNode looks for steps that would start several ranks on a node.
func (j *job) checkRanksPerNode() {
	for _, s := range j.calls("serve", "run") {
		n, known := j.tasksPerNode(s)
		if s.launcher != "srun" || !known || n < 2 {
			continue
		}
		advice := "write srun --ntasks-per-node=1"
		if s.is("run") {
			advice += fmt.Sprintf(" and rankpool run --trainers-per-rank %d, or call rankpool run "+
				"without srun", n)
		}
		j.warn(s.Line, fmt.Sprintf("%s starts %d ranks on a node, and one is meant to be there",
			s.title(), n), advice)
	}
}

// checkJoin looks for training steps beside the cache that do not find it.
func (j *job) checkJoin() {
	if len(j.calls("serve")) == 0 || j.assigned["RANKPOOL_SESSION"] || j.assigned["RANKPOOL_SOCKET"] {
		return
	}
	for _, s := range j.steps {
		if s.tool == nil && trains(s.program) {
			j.warn(s.Line, s.title()+" does not know where the cache is",
				"write rankpool join -- before its command")
		}
	}
}

// checkOverlap looks for steps beside the cache that would wait for its end.
func (j *job) checkOverlap() {
	if j.assigned["SLURM_OVERLAP"] {
		return
	}
	warned := map[*step]bool{}
	var running []*step
	for _, next := range j.timeline() {
		if next == nil {
			running = nil
			continue
		}
		if next.launcher != "srun" {
			continue
		}
		together := append(slices.Clone(running), next)
		if len(together) > 1 &&
			slices.ContainsFunc(together, func(s *step) bool { return s.is("serve") }) {
			for _, s := range together {
				if _, found := s.option("overlap"); !found && !warned[s] {
					warned[s] = true
					j.warn(s.Line, s.title()+" has no --overlap, so it and the other step wait for each other",
						"write srun --overlap in both steps")
				}
			}
		}
		if next.Background && len(running) < maxTogether {
			running = append(running, next)
		}
	}
}

// maxTogether bounds the steps that are compared with each other.
const maxTogether = 16

// timeline returns steps in the order of the script, and nil where it waits for all of them.
func (j *job) timeline() []*step {
	var line []*step
	steps := j.steps
	for i, c := range j.script.Commands {
		if len(steps) > 0 && steps[0].at == i {
			line, steps = append(line, steps[0]), steps[1:]
		} else if c.calls("wait") {
			line = append(line, nil)
		}
	}
	return line
}

// checkCacheGPUs looks for a step that Slurm refuses.
//
// Source: measured with Slurm 22.05: --gres=none beside the script's --gpus-per-node is an error.
func (j *job) checkCacheGPUs() {
	if _, found := j.directive("gpus-per-node"); !found || j.assigned["SLURM_GPUS_PER_NODE"] {
		return
	}
	for _, s := range j.calls("serve", "stage", "end") {
		if o, _ := s.option("gres"); o.Value == "none" {
			j.warn(s.Line, "srun refuses --gres=none beside #SBATCH --gpus-per-node",
				"leave it out: steps with --overlap share the GPUs")
		}
	}
}

// checkCPUs looks for training steps that get one CPU per task.
//
// Source: SchedMD, release notes of Slurm 22.05: srun does not take over sbatch's --cpus-per-task.
func (j *job) checkCPUs() {
	j.checkOneCPU()
	if j.request.cpusPerTask < 2 || j.assigned["SRUN_CPUS_PER_TASK"] {
		return
	}
	for _, s := range j.steps {
		_, given := s.option("cpus-per-task", "cpus-per-gpu", "exclusive", "exact", "whole")
		training := s.is("run", "join") || s.tool == nil && trains(s.program)
		if training && !given && s.launcher == "srun" {
			j.warn(s.Line, fmt.Sprintf("since Slurm 22.05 srun does not take over --cpus-per-task=%d, so "+
				"each task may get one CPU", j.request.cpusPerTask),
				"write srun --cpus-per-task=$SLURM_CPUS_PER_TASK")
		}
	}
}

// checkOneCPU looks for jobs without GPUs that take all memory of their nodes, and one CPU of each.
//
// Source: SchedMD, sbatch(1), --cpus-per-task: by default one CPU a task is allocated.
func (j *job) checkOneCPU() {
	memory, _ := j.directive("mem")
	_, given := j.directive("cpus-per-task", "cpus-per-gpu", "mincpus", "exclusive", "ntasks-per-core",
		"extra-node-info", "tres-per-task")
	if memory.Value != "0" || given || j.request.gpusPerNode > 0 || j.request.tasksPerNode > 1 ||
		j.script.hetJob {
		return
	}
	if len(j.calls("run")) > 0 {
		j.warn(memory.Line, "the job takes all memory of its nodes, and one CPU, for the cache, "+
			"training and its DataLoader workers",
			"add #SBATCH --cpus-per-task=N")
	}
}

// checkBinding looks for ranks that mpirun binds to one core each.
//
// Source: measured with Open MPI 4.1: Go then sees one CPU, and all threads of the rank share the
// core.
func (j *job) checkBinding() {
	if j.facts.MPI != "pmix" || j.assigned["OMPI_MCA_hwloc_base_binding_policy"] {
		return
	}
	for _, s := range j.calls("serve", "run") {
		if s.launcher == "" || s.launcher == "srun" {
			continue
		}
		binds := func(word string) bool {
			return strings.Contains(word, "bind-to") || strings.Contains(word, "map-by") ||
				strings.Contains(word, "binding_policy")
		}
		if !slices.ContainsFunc(s.program, binds) {
			j.warn(s.Line, s.launcher+" of Open MPI ties every rank to one core",
				"write "+s.launcher+" --bind-to none")
		}
	}
}

func (j *job) checkKillOnBadExit() {
	for _, s := range j.calls("run") {
		o, found := s.option("kill-on-bad-exit")
		if found && o.Value != "0" && s.launcher == "srun" {
			j.warn(s.Line, "--kill-on-bad-exit ends training on all nodes when one rank of the cache dies",
				"leave it out, or call rankpool run without srun: then the cache gets its own step")
		}
	}
}

// checkWait looks for a background step that the end of the script would end.
func (j *job) checkWait() {
	if len(j.steps) == 0 {
		return
	}
	last := j.steps[len(j.steps)-1]
	goesOn := slices.ContainsFunc(j.script.Commands[last.at+1:], func(c Command) bool {
		return c.calls("wait") || len(c.Words) > 0 && !c.calls(harmless...)
	})
	if last.Background && !goesOn {
		j.warn(last.Line, last.title()+" runs in the background, and the job ends with the script",
			"write \"wait\" after it")
	}
}

func (j *job) checkAfterExec() {
	for _, s := range j.steps {
		if !s.exec || s.depth > 0 || s.Background || s.Guarded {
			continue
		}
		for _, c := range j.script.Commands[s.at+1:] {
			if len(c.Words) > 0 {
				j.warn(c.Line, fmt.Sprintf("this does not run: exec in line %d has put %s in the shell's place",
					s.Line, s.title()),
					"move it up, or leave exec out")
				return
			}
		}
	}
}
