package batchscript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// rankCommands are the subcommands whose tasks join over MPI when srun or mpirun starts several.
var rankCommands = []string{"serve", "run", "stage", "pack", "index"}

// toolFlags calls each with the names of the subcommand's flags.
func (s *step) toolFlags(facts Facts, each func(name string)) {
	facts.Flags(s.tool.Subcommand).VisitAll(func(f *pflag.Flag) { each(f.Name) })
}

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

// severalTasks returns how many tasks of a step start on a node if they are known to be several,
// else 0.
func (j *job) severalTasks(s *step) int {
	if n, known := j.tasksPerNode(s); known && n > 1 {
		return n
	}
	return 0
}

// checkMPI compares --mpi with what this machine's MPI library needs.
func (j *job) checkMPI() {
	for _, s := range j.steps {
		if s.launcher != "srun" || !s.is(rankCommands...) {
			continue
		}
		o, given := s.option("mpi")
		kind, _, _ := strings.Cut(o.Value, "_") // pmix_v4 is pmix
		want, _, _ := strings.Cut(j.facts.MPI, "_")
		switch {
		case !given && !j.assigned["SLURM_MPI_TYPE"] && want == "":
			j.warn(s.Line, s.title()+" has no --mpi, so MPI does not start, or every rank is alone",
				"write srun --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH")
		case !given && !j.assigned["SLURM_MPI_TYPE"]:
			j.warn(s.Line, s.title()+" has no --mpi, so MPI does not start, or every rank is alone",
				"write srun --mpi="+want)
		case given && want != "" && kind != want:
			j.warn(s.Line, fmt.Sprintf("--mpi=%s does not fit this machine's MPI library", shorten(o.Value)),
				"write srun --mpi="+want+", or load the MPI that it is for")
		}
	}
}

// checkRanksPerNode looks for steps that would start several ranks on a node.
func (j *job) checkRanksPerNode() {
	for _, s := range j.steps {
		if s.launcher != "srun" || !s.is("serve", "run") {
			continue
		}
		n := j.severalTasks(s)
		if n == 0 {
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
	serves := slices.ContainsFunc(j.steps, func(s *step) bool { return s.is("serve") })
	if !serves || j.assigned["RANKPOOL_SESSION"] || j.assigned["RANKPOOL_SOCKET"] {
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
	for _, c := range j.timeline() {
		if c.step == nil { // wait
			running = nil
			continue
		}
		if c.step.launcher != "srun" {
			continue
		}
		together := append(slices.Clone(running), c.step)
		if len(together) > 1 && slices.ContainsFunc(
			together, func(s *step) bool { return s.is("serve") }) {
			for _, s := range together {
				if _, found := s.option("overlap"); !found && !warned[s] {
					warned[s] = true
					j.warn(s.Line, s.title()+" has no --overlap, so it and the other step wait for each other",
						"write srun --overlap in both steps")
				}
			}
		}
		if c.step.Background && len(running) < maxTogether {
			running = append(running, c.step)
		}
	}
}

// maxTogether bounds the steps that are compared with each other.
const maxTogether = 16

// A moment is the start of a step or, without one, a wait for all of them.
type moment struct{ step *step }

// timeline returns steps and waits in the order of the script.
func (j *job) timeline() []moment {
	var moments []moment
	steps := j.steps
	for i, c := range j.script.Commands {
		if len(steps) > 0 && steps[0].at == i {
			moments = append(moments, moment{steps[0]})
			steps = steps[1:]
		} else if len(c.Words) > 0 && c.Words[0] == "wait" {
			moments = append(moments, moment{})
		}
	}
	return moments
}

// checkCacheGPUs looks for a step that Slurm refuses.
//
// Source: measured with Slurm 22.05: --gres=none beside the script's --gpus-per-node is an error.
func (j *job) checkCacheGPUs() {
	if _, found := j.directive("gpus-per-node"); !found || j.assigned["SLURM_GPUS_PER_NODE"] {
		return
	}
	for _, s := range j.steps {
		if o, _ := s.option("gres"); o.Value == "none" && s.is("serve", "stage", "end") {
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
				"each task may get one CPU",
				j.request.cpusPerTask),

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
	for _, s := range j.steps {
		if s.is("run") {
			j.warn(memory.Line, "the job takes all memory of its nodes, and one CPU, for the cache, "+
				"training and its DataLoader workers",
				"add #SBATCH --cpus-per-task=N")
			return
		}
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
	for _, s := range j.steps {
		if s.launcher == "" || s.launcher == "srun" || !s.is("serve", "run") {
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
	for _, s := range j.steps {
		o, found := s.option("kill-on-bad-exit")
		if found && o.Value != "0" && s.launcher == "srun" && s.is("run") {
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
		return len(c.Words) > 0 && (c.Words[0] == "wait" || !slices.Contains(harmless, c.Words[0]))
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
