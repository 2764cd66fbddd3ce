// Package slurm reads the job that Slurm describes in a process's environment. It starts nothing and
// asks no daemon.
package slurm

import (
	"strconv"
	"strings"
)

// Absent is the value of a number that the environment does not give.
const Absent = -1

// Step numbers from firstReservedStep up are not srun's: interactive 0xfffffffa, batch 0xfffffffb,
// extern 0xfffffffc, pending 0xfffffffd.
//
// Source: Slurm, slurm.h, SLURM_INTERACTIVE_STEP and the names beside it.
const firstReservedStep = 0xfffffff0

// A Job is what the environment says about the Slurm job a process runs in.
//
// The zero JobID is a process outside Slurm. Numbers are Absent where the variable is missing or no number.
type Job struct {
	JobID        string // JobID is SLURM_JOB_ID; for a task of a job array the number of the task's own job.
	StepID       string // StepID is SLURM_STEP_ID; empty in a batch script.
	NodeID       int    // NodeID is the node's place in the allocation or the step, from 0.
	Nodes        int    // Nodes is the number of nodes of the step, or of the allocation outside a step.
	Tasks        int    // Tasks is the number of tasks of the step, or what the batch script asked for.
	ProcID       int    // ProcID is the task's place in the step, from 0; 0 in a batch script as well.
	LocalID      int    // LocalID is the task's place on its node, from 0.
	LocalTasks   int    // LocalTasks is the number of tasks on this node, from SLURM_STEP_TASKS_PER_NODE or what the batch script asked for.
	RestartCount int    // RestartCount says how often the job was requeued; 0 at the first start.
	NodeList     string // NodeList is SLURM_JOB_NODELIST as it is, e.g. "gpu[01-04,07]".
}

// Detect reads the job from the environment that getenv gives (os.Getenv, or a test's).
// It is pure, and never fails: what is missing or malformed is Absent or empty.
func Detect(getenv func(string) string) Job {
	node := number(getenv, "SLURM_NODEID")
	return Job{
		JobID:        first(getenv, "SLURM_JOB_ID", "SLURM_JOBID"),
		StepID:       first(getenv, "SLURM_STEP_ID", "SLURM_STEPID"),
		NodeID:       node,
		Nodes:        number(getenv, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
		Tasks:        number(getenv, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
		ProcID:       number(getenv, "SLURM_PROCID"),
		LocalID:      number(getenv, "SLURM_LOCALID"),
		LocalTasks:   tasksOn(first(getenv, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), node),
		RestartCount: max(0, number(getenv, "SLURM_RESTART_COUNT")),
		NodeList:     first(getenv, "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
	}
}

// InJob reports whether the process runs inside a Slurm allocation.
func (j Job) InJob() bool { return j.JobID != "" }

// InStep reports whether srun started the process (or an ancestor of it) as a task of a step.
// The shell of a batch script or of an interactive step is no such task.
func (j Job) InStep() bool {
	if !j.InJob() || j.StepID == "" {
		return false
	}
	id, err := strconv.ParseUint(j.StepID, 10, 64)
	return err == nil && id < firstReservedStep
}

// FirstHost returns the name of the first node of NodeList, "" when there is none:
// "gpu01" for "gpu[01-04,07],login1".
func (j Job) FirstHost() string {
	open := strings.IndexAny(j.NodeList, "[,")
	if open < 0 || j.NodeList[open] == ',' {
		name, _, _ := strings.Cut(j.NodeList, ",")
		return name
	}
	prefix, rest := j.NodeList[:open], j.NodeList[open+1:]
	closing := strings.IndexByte(rest, ']')
	if closing < 0 {
		return ""
	}
	number := rest[:strings.IndexAny(rest, "-,]")]
	tail, _, _ := strings.Cut(rest[closing+1:], ",")
	// A name may have a second list ("rack[1-2]node[1-4]"): its first member counts too.
	return prefix + number + Job{NodeList: tail}.FirstHost()
}

// tasksOn returns the entry of a node in Slurm's run-length list of tasks per node: 3 for "2(x2),3" and node 2.
func tasksOn(list string, node int) int {
	if node < 0 {
		return Absent
	}
	for part := range strings.SplitSeq(list, ",") {
		count, repeat, repeated := strings.Cut(strings.TrimSuffix(part, ")"), "(x")
		times := 1
		if repeated {
			times, _ = strconv.Atoi(repeat) // 0, no node, where it is no number
		}
		if node -= times; node < 0 {
			n, err := strconv.Atoi(count)
			if err != nil || n < 0 || times == 0 {
				return Absent
			}
			return n
		}
	}
	return Absent
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
