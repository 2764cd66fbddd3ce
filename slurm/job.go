// Package slurm reads the Slurm job from a process's environment, and the limits on the process on
// its node: GPUs, memory, time, scratch space.
//
// It is pure: callers pass environment, files and commands as functions, and the results show what
// is missing or malformed.
package slurm

import (
	"slices"
	"strconv"
	"strings"
)

// Absent is the value of a number that the environment does not contain.
const Absent = -1

// Step numbers from firstReservedStep up are not srun's: interactive 0xfffffffa, batch 0xfffffffb,
// extern 0xfffffffc, pending 0xfffffffd.
//
// Source: Slurm, slurm.h, SLURM_INTERACTIVE_STEP and the names beside it.
const firstReservedStep = 0xfffffff0

// A Job is the Slurm job that a process runs in, according to its environment.
//
// An empty JobID means a process outside Slurm. Numbers are Absent if the variable is missing or
// not a number.
type Job struct {
	// JobID is SLURM_JOB_ID; for a task of a job array, the number of the task's own job.
	JobID    string
	StepID   string // StepID is SLURM_STEP_ID; empty in a batch script.
	NodeID   int    // NodeID is the node's place in the allocation or the step, from 0.
	NodeName string // NodeName is SLURMD_NODENAME, the name of this node in node lists.
	// Nodes is the number of nodes of the step, or of the allocation outside a step.
	Nodes int
	// Tasks is the number of tasks of the step, or what the batch script asked for.
	Tasks   int
	ProcID  int // ProcID is the task's place in the step, from 0; 0 in a batch script as well.
	LocalID int // LocalID is the task's place on its node, from 0.
	// LocalTasks is the number of tasks on this node, from SLURM_STEP_TASKS_PER_NODE or what the batch
	// script asked for.
	LocalTasks int
	// TasksPerNode is the unparsed list of LocalTasks of all nodes, such as "4(x2),3"; see TaskCounts.
	TasksPerNode string
	RestartCount int    // RestartCount is how often the job was requeued; 0 at the first start.
	NodeList     string // NodeList is SLURM_JOB_NODELIST unparsed, such as "gpu[01-04,07]"; see Hosts.

	// ArrayJobID is the number that the tasks of a job array share; empty outside one.
	ArrayJobID  string
	ArrayTaskID int // ArrayTaskID is the task's index in the array.
}

// Detect reads the job from the environment that getenv returns (os.Getenv, or a test's). It is
// pure, and never fails: what is missing or malformed is Absent or empty.
//
// The shell of an interactive step has the variables of a step of one task; there, Detect returns
// the job that the shell launches on. If the job was submitted from inside a step of another job,
// Detect mistakes that step for one of this job; see Leftovers.
func Detect(getenv func(string) string) Job {
	if id := (Job{JobID: jobID(getenv), StepID: stepID(getenv)}); !id.InStep() {
		getenv = withoutStep(getenv)
	}
	node := number(getenv, "SLURM_NODEID")
	tasks := first(getenv, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	return Job{
		JobID:        jobID(getenv),
		StepID:       stepID(getenv),
		NodeID:       node,
		NodeName:     getenv("SLURMD_NODENAME"),
		Nodes:        number(getenv, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
		Tasks:        number(getenv, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
		ProcID:       number(getenv, "SLURM_PROCID"),
		LocalID:      number(getenv, "SLURM_LOCALID"),
		LocalTasks:   entry(tasks, node),
		TasksPerNode: tasks,
		RestartCount: max(0, number(getenv, "SLURM_RESTART_COUNT")),
		NodeList:     first(getenv, "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
		ArrayJobID:   getenv("SLURM_ARRAY_JOB_ID"),
		ArrayTaskID:  number(getenv, "SLURM_ARRAY_TASK_ID"),
	}
}

func jobID(getenv func(string) string) string {
	return first(getenv, "SLURM_JOB_ID", "SLURM_JOBID")
}

func stepID(getenv func(string) string) string {
	return first(getenv, "SLURM_STEP_ID", "SLURM_STEPID")
}

// withoutStep returns getenv without the variables of a step, except its number.
func withoutStep(getenv func(string) string) func(string) string {
	return func(name string) string {
		if strings.HasPrefix(name, "SLURM_STEP_") && name != "SLURM_STEP_ID" {
			return ""
		}
		return getenv(name)
	}
}

// cpusHere returns the number of the job's CPUs on this node, or of the step's if the node is
// unknown. It looks the node up in the job's list, since in a step SLURM_CPUS_ON_NODE is the
// step's.
func (j Job) cpusHere(getenv func(string) string) int {
	if hosts, err := j.Hosts(); err == nil {
		if n := entry(getenv("SLURM_JOB_CPUS_PER_NODE"), slices.Index(hosts, j.NodeName)); n != Absent {
			return n
		}
	}
	return number(getenv, "SLURM_CPUS_ON_NODE")
}

// InJob reports whether the process runs inside a Slurm allocation.
func (j Job) InJob() bool { return j.JobID != "" }

// InStep reports whether srun started the process (or an ancestor of it) as a task of a step. The
// shell of a batch script or of an interactive step is not such a task.
func (j Job) InStep() bool {
	if !j.InJob() || j.StepID == "" {
		return false
	}
	id, err := strconv.ParseUint(j.StepID, 10, 64)
	return err == nil && id < firstReservedStep
}

// InArray reports whether the job is a task of a job array.
func (j Job) InArray() bool { return j.ArrayJobID != "" && j.ArrayTaskID != Absent }

// Hosts returns the names of the nodes of NodeList; the errors are those of ParseHostlist.
func (j Job) Hosts() ([]string, error) { return ParseHostlist(j.NodeList) }

// FirstHost returns the name of the first node of NodeList, "" when there is none or the list is
// malformed: "gpu01" for "gpu[01-04,07],login1".
func (j Job) FirstHost() string {
	if hosts, err := j.Hosts(); err == nil && len(hosts) > 0 {
		return hosts[0]
	}
	return ""
}

// TaskCounts returns the number of tasks of each node in TasksPerNode: 4, 4, 3 for "4(x2),3". It is
// nil if the list is missing, malformed, or longer than 65,536 nodes.
func (j Job) TaskCounts() []int {
	var counts []int
	for part := range strings.SplitSeq(j.TasksPerNode, ",") {
		count, times := run(part)
		if count == Absent || times > maxHosts-len(counts) {
			return nil
		}
		counts = append(counts, slices.Repeat([]int{count}, times)...)
	}
	return counts
}

// entry returns a node's entry in one of Slurm's run-length lists: 3 for "2(x2),3" and node 2.
func entry(list string, node int) int {
	if node < 0 {
		return Absent
	}
	for part := range strings.SplitSeq(list, ",") {
		count, times := run(part)
		if count == Absent || times > node {
			return count
		}
		node -= times
	}
	return Absent
}

// run parses "4(x2)" or "4": a number, and how often it is repeated. It returns Absent, 0 if that
// is malformed.
func run(part string) (count, times int) {
	digits, repeat, repeated := strings.Cut(part, "(x")
	times = 1
	if repeated {
		repeat, closed := strings.CutSuffix(repeat, ")")
		n, err := strconv.Atoi(repeat)
		if err != nil || n < 1 || !closed {
			return Absent, 0
		}
		times = n
	}
	count, err := strconv.Atoi(digits)
	if err != nil || count < 0 {
		return Absent, 0
	}
	return count, times
}

// AllocatedNodes returns the size of the allocation, also within a smaller step, 0 outside Slurm.
func AllocatedNodes(getenv func(string) string) int {
	return max(0, number(getenv, "SLURM_JOB_NUM_NODES", "SLURM_NNODES"))
}

func first(getenv func(string) string, names ...string) string {
	for _, name := range names {
		if v := getenv(name); v != "" {
			return v
		}
	}
	return ""
}

func number(getenv func(string) string, names ...string) int {
	n, err := strconv.Atoi(first(getenv, names...))
	if err != nil || n < 0 {
		return Absent
	}
	return n
}
