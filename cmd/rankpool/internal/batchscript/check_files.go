package batchscript

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// checkMemory compares the cache's memory with the job's.
func (j *job) checkMemory() {
	if j.script.hetJob {
		return
	}
	for _, s := range j.calls("run", "serve") {
		memory := s.tool.value("memory")
		if strings.ContainsAny(memory, "$`") {
			memory = ""
		}
		bytes, err := int64(0), error(nil)
		if memory != "" {
			bytes, err = j.facts.Size(memory)
		}
		have := j.request.memoryBytes
		switch {
		case err != nil:
			j.warn(s.Line, fmt.Sprintf("rankpool refuses --memory: %v", err),
				"write a size such as 64GiB, a share such as 20%, or auto")
		case bytes > 0 && have > 0 && bytes >= have:
			j.warn(s.Line, fmt.Sprintf("--memory %s leaves nothing of the job's memory, %s a node, "+
				"to training", memory, gib(have)),
				"raise #SBATCH --mem, or ask for less with --memory")
		case (bytes > 0 || memory == "auto") && !j.request.memoryGiven:
			j.warn(s.Line, fmt.Sprintf("--memory %s without #SBATCH --mem: the job has the "+
				"partition's default%s", memory, alsoExclusive(j)),
				"add #SBATCH --mem=SIZE, or --mem=0 for all of a node's")
		}
	}
}

// alsoExclusive is additional advice for a script that takes whole nodes, but not their memory.
//
// Source: SchedMD, sbatch(1), --exclusive: the job "is only allocated as much memory as it
// requested".
func alsoExclusive(j *job) string {
	if _, found := j.directive("exclusive"); found {
		return ", also with --exclusive"
	}
	return ", or a node that others use too"
}

func gib(bytes int64) string { return fmt.Sprintf("%.4g GiB", float64(bytes)/(1<<30)) }

// checkData looks for missing data sets, unless the path depends on variables or on another folder.
func (j *job) checkData() {
	_, moves := j.directive("chdir")
	for _, c := range j.script.Commands {
		moves = moves || c.calls("cd", "pushd")
	}
	for _, s := range j.calls("run", "serve", "stage", "pack") {
		for _, data := range s.tool.Flags["data"] {
			if name, rest, found := strings.Cut(data, "="); found && !strings.Contains(name, "/") {
				data = rest
			}
			if data == "" || strings.ContainsAny(data, "$`~*?[") || moves && !path.IsAbs(data) ||
				j.facts.Exists(data) {
				continue
			}
			j.warn(s.Line, fmt.Sprintf("--data %s does not exist on this machine", shorten(data)),
				"check the path; data may also lie where only the nodes see it")
		}
	}
}

// kept are the flags for files that are wanted after the job.
var kept = []string{"state", "log"}

// nodeLocal are prefixes of paths that are gone, or out of reach, when the job has ended.
var nodeLocal = []string{
	"/tmp/", "/var/tmp/", "/dev/shm/", "/run/", "$TMPDIR", "${TMPDIR",
	"$SLURM_TMPDIR", "${SLURM_TMPDIR", "$LOCAL_SCRATCH", "${LOCAL_SCRATCH",
}

// checkLostFiles looks for files on a node's own disk or in its memory, unless the script copies
// them away.
func (j *job) checkLostFiles() {
	j.eachFile(func(s *step, flag, file string) {
		local := slices.ContainsFunc(nodeLocal,
			func(begin string) bool { return strings.HasPrefix(file, begin) })
		saved := slices.ContainsFunc(j.script.Commands, func(c Command) bool {
			return c.calls("cp", "mv", "rsync") && slices.Contains(c.Words[1:], file)
		})
		if local && !saved {
			j.warn(s.Line, fmt.Sprintf("--%s %s is lost when the job ends, and a requeued job does "+
				"not find it", flag, shorten(file)),
				"name a file on shared storage")
		}
	})
}

// ofArray are variables that all tasks of an array share.
var ofArray = []string{
	"SLURM_ARRAY_JOB_ID", "SLURM_SUBMIT_DIR", "USER", "HOME", "PWD", "SCRATCH", "WORK",
}

// checkArrayFiles looks for files that all tasks of a job array would write.
func (j *job) checkArrayFiles() {
	if _, found := j.directive("array"); !found {
		return
	}
	j.eachFile(func(s *step, flag, file string) {
		for _, name := range ofArray {
			file = strings.ReplaceAll(strings.ReplaceAll(file, "${"+name+"}", ""), "$"+name, "")
		}
		if !strings.ContainsAny(file, "$`") {
			j.warn(s.Line, fmt.Sprintf("all tasks of the array write --%s %s", flag,
				shorten(s.tool.value(flag))),
				"put $SLURM_ARRAY_TASK_ID into its name")
		}
	})
}

// eachFile calls do for every file that is wanted after the job.
func (j *job) eachFile(do func(s *step, flag, file string)) {
	for _, s := range j.calls("run", "serve") {
		for _, flag := range kept {
			if file := s.tool.value(flag); file != "" {
				do(s, flag, file)
			}
		}
	}
}
