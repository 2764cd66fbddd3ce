package slurm

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Leftovers returns what to change in the environment of a job that was submitted, or allocated,
// from inside a step of another job: sbatch and salloc pass on the variables of that step, by which
// this process looks like a task of it. It maps names to the values they should have, "" for none,
// and is nil where the environment has no step, or one of this job.
//
// What tells is the slurmstepd that this process descends from, which has the job and the step in
// its title. Where it cannot be seen (a /proc that hides others' processes, a container), the
// variables tell, as far as they contradict each other.
//
// environ is as os.Environ gives it, and files of /proc are read by readFile (os.ReadFile, or a
// test's); it is pure otherwise.
//
// Source: measured with Slurm 22.05 (testdata/leak*.env): of these variables sbatch sets
// SLURM_TASKS_PER_NODE always, SLURM_NTASKS only where the script asks for tasks.
func Leftovers(environ []string, readFile func(string) ([]byte, error)) map[string]string {
	env := map[string]string{}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	getenv := func(name string) string { return env[name] }
	job := Detect(getenv)
	if !job.InJob() || job.StepID == "" || !job.foreignStep(getenv, readFile) {
		return nil
	}
	change := map[string]string{}
	for name := range env {
		if ofStep(name) || ofPMI(name) && !byMPIRun(getenv) {
			change[name] = ""
		}
	}
	if hosts, err := job.Hosts(); err == nil && job.NodeName != "" &&
		!slices.Contains(hosts, job.NodeName) {
		for _, name := range []string{
			"SLURMD_NODENAME", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID",
			"SLURM_CPUS_ON_NODE",
		} {
			change[name] = ""
		}
	}
	correctTasks(change, getenv)
	return change
}

// ofStep reports whether srun alone sets a variable. SLURM_STEPMGR is none of them, and belongs to
// the job.
func ofStep(name string) bool {
	return strings.HasPrefix(name, "SLURM_STEP_") || name == "SLURM_STEPID"
}

func ofPMI(name string) bool {
	return strings.HasPrefix(name, "PMI_") || strings.HasPrefix(name, "PMIX_")
}

// byMPIRun reports whether the process is a rank of an mpirun, which has a PMI of its own and mixes
// its variables with those of the step of its daemons.
func byMPIRun(getenv func(string) string) bool {
	return first(getenv, "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS") != ""
}

// correctTasks makes the numbers of tasks, which srun takes for options, those of the job.
func correctTasks(change map[string]string, getenv func(string) string) {
	counts, all := (Job{TasksPerNode: getenv("SLURM_TASKS_PER_NODE")}).TaskCounts(), 0
	if len(counts) == 0 {
		return
	}
	for _, n := range counts {
		all += n
	}
	for _, name := range []string{"SLURM_NTASKS", "SLURM_NPROCS"} {
		if n := number(getenv, name); n != Absent && n != all {
			change[name] = strconv.Itoa(all)
		}
	}
	if number(getenv, "SLURM_NTASKS_PER_NODE") != slices.Max(counts) {
		change["SLURM_NTASKS_PER_NODE"] = ""
	}
}

// foreignStep reports whether the step of the environment is another job's.
func (j Job) foreignStep(getenv func(string) string, readFile func(string) ([]byte, error)) bool {
	job, step, found := stepDaemon(readFile)
	if !found {
		return j.InStep() && j.contradicts(getenv)
	}
	// The components of a heterogeneous job have numbers of their own, and tasks have the first one's.
	return step == "batch" || job != j.JobID && !j.InHet()
}

// contradicts reports whether the variables of the step do not fit the job's, of which srun sets
// some anew for its tasks.
func (j Job) contradicts(getenv func(string) string) bool {
	if byMPIRun(getenv) {
		return false
	}
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	if differ(getenv("SLURM_STEP_TASKS_PER_NODE"), getenv("SLURM_TASKS_PER_NODE")) {
		return true
	}
	hosts, err := ParseHostlist(getenv("SLURM_STEP_NODELIST"))
	if err == nil && len(hosts) > 0 && j.NodeName != "" && !slices.Contains(hosts, j.NodeName) {
		return true
	}
	pmix, _ := strings.CutPrefix(getenv("PMIX_NAMESPACE"), "slurm.pmix.")
	for _, step := range []string{pmix, getenv("PMI_JOBID")} { // "412.0"
		if id, _, found := strings.Cut(step, "."); found && differ(id, j.JobID) && !j.InHet() {
			return true
		}
	}
	return false
}

// maxAncestors is how far up stepDaemon looks: shells and wrappers are a handful.
const maxAncestors = 64

// stepDaemon returns the job and the step ("batch", "interactive", "0") of the slurmstepd that this
// process descends from, and whether one can be seen and has a title of that form.
func stepDaemon(readFile func(string) ([]byte, error)) (job, step string, found bool) {
	for pid, n := "self", 0; n < maxAncestors && pid != "0"; n++ {
		title, err := readFile(path.Join("/proc", pid, "cmdline"))
		if err != nil {
			return "", "", false
		}
		if words, is := strings.CutPrefix(string(title), "slurmstepd: ["); is {
			return parseStep(words)
		}
		if pid = parent(readFile, pid); pid == "" {
			return "", "", false
		}
	}
	return "", "", false
}

// parseStep reads the title's "412.batch]" or "412.0]"; of "412+1.0+1]" only the first numbers
// count.
func parseStep(title string) (job, step string, found bool) {
	words, _, closed := strings.Cut(title, "]")
	job, step, dotted := strings.Cut(words, ".")
	job, _, _ = strings.Cut(job, "+")
	step, _, _ = strings.Cut(step, "+")
	_, err := strconv.ParseUint(job, 10, 64)
	return job, step, closed && dotted && err == nil
}

// parent returns the number of a process's parent, "" where it cannot be read.
//
// Source: Linux, proc_pid_stat(5): "pid (name) state parent …", of which the name may hold
// anything.
func parent(readFile func(string) ([]byte, error), pid string) string {
	stat, err := readFile(path.Join("/proc", pid, "stat"))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}
