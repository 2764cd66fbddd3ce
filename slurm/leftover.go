package slurm

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Leftovers returns the changes to make to the environment of a job that was submitted, or
// allocated, from inside a step of another job: sbatch and salloc pass that step's variables on,
// which make this process look like a task of it. It maps names to their correct values, "" for
// none, and is nil if the environment has no step, or one of this job.
//
// The evidence is the slurmstepd that this process descends from, which has the job and the step in
// its title. Where it cannot be seen (a /proc that hides others' processes, a container), the step
// counts as this job's.
//
// environ is in the form of os.Environ, and readFile reads files of /proc (os.ReadFile, or a
// test's); otherwise it is pure.
//
// Source: measured with Slurm 22.05 (testdata/leak*.env): of these variables sbatch always sets
// SLURM_TASKS_PER_NODE, but SLURM_NTASKS only if the script asks for tasks.
func Leftovers(environ []string, readFile func(string) ([]byte, error)) map[string]string {
	env := variablesOf(environ)
	getenv := env.get
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

// variables are an environment's, by name.
type variables map[string]string

func variablesOf(environ []string) variables {
	v := variables{}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		v[name] = value
	}
	return v
}

func (v variables) get(name string) string { return v[name] }

// ofStep reports whether only srun sets a variable. SLURM_STEPMGR is not one of these: it belongs
// to the job.
func ofStep(name string) bool {
	return strings.HasPrefix(name, "SLURM_STEP_") || name == "SLURM_STEPID"
}

func ofPMI(name string) bool {
	return strings.HasPrefix(name, "PMI_") || strings.HasPrefix(name, "PMIX_")
}

// byMPIRun reports whether the process is a rank of an mpirun, which has its own PMI and mixes its
// variables with those of the step of its daemons.
func byMPIRun(getenv func(string) string) bool {
	return first(getenv, "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS") != ""
}

// correctTasks sets the numbers of tasks, which srun reads as options, to those of the job.
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

// foreignStep reports whether the step in the environment is another job's. Each component of a
// heterogeneous job has its own job ID, but tasks have the first one's.
func (j Job) foreignStep(getenv func(string) string, readFile func(string) ([]byte, error)) bool {
	job, step, found := stepDaemon(readFile)
	return found && (step == "batch" || job != j.JobID && number(getenv, "SLURM_HET_SIZE") <= 0)
}

// maxAncestors is how far up stepDaemon looks; there are only a handful of shells and wrappers.
const maxAncestors = 64

// stepDaemon returns the job and the step ("batch", "interactive", "0") of the slurmstepd that this
// process descends from, and whether it found one with a title of that form.
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

// parseStep parses the title's "412.batch]" or "412.0]"; of "412+1.0+1]" it uses only the first
// numbers.
func parseStep(title string) (job, step string, found bool) {
	words, _, closed := strings.Cut(title, "]")
	job, step, dotted := strings.Cut(words, ".")
	job, _, _ = strings.Cut(job, "+")
	step, _, _ = strings.Cut(step, "+")
	_, err := strconv.ParseUint(job, 10, 64)
	return job, step, closed && dotted && err == nil
}

// parent returns the process ID of a process's parent, "" if it cannot be read.
//
// Source: Linux, proc_pid_stat(5): "pid (name) state parent …", where the name may contain any
// character.
func parent(readFile func(string) ([]byte, error), pid string) string {
	stat, err := readFile(path.Join("/proc", pid, "stat"))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}
