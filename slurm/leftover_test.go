package slurm

import (
	"maps"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// below returns the /proc of a process whose ancestors have the titles, the nearest first; the last
// one's parent is 1.
func below(titles ...string) files {
	proc := files{
		"/proc/self/cmdline": "rankpool\x00run", "/proc/self/stat": "900 (ra) 0 (l) S 100 1",
		"/proc/1/cmdline": "init", "/proc/1/stat": "1 (init) S 0 1",
	}
	for i, title := range titles {
		pid, parent := strconv.Itoa(100+i), strconv.Itoa(101+i)
		if i == len(titles)-1 {
			parent = "1"
		}
		proc["/proc/"+pid+"/cmdline"], proc["/proc/"+pid+"/stat"] = title, pid+" (bash) S "+parent+" 1"
	}
	return proc
}

// TestLeftovers uses measured environments, each with the slurmstepd that was seen above it.
func TestLeftovers(t *testing.T) {
	hidden := below("/bin/bash")
	for _, c := range []struct {
		file   string
		daemon string // "": hidden
		want   map[string]string
		nodes  int // after the change
		tasks  int
	}{
		{"leak", "400006.batch", map[string]string{"PMIX_RANK": ""}, 2, 4},
		{"leaknodes", "400008.batch", map[string]string{
			"SLURM_NTASKS": "2", "SLURM_NPROCS": "2", "PMIX_RANK": "",
		}, 2, 2},
		{"leakpmi2", "400014.batch", map[string]string{
			"SLURM_NTASKS": "2", "SLURM_NPROCS": "2", "PMI_SIZE": "",
		}, 2, 2},
		{"leaksalloc", "400019.0", map[string]string{
			"SLURM_NTASKS": "2", "SLURM_NPROCS": "2", "SLURM_NODEID": "", "SLURMD_NODENAME": "",
		}, 2, 2},
		{"leakshell", "400017.batch", map[string]string{}, 2, Absent},
		{"shell", "400015.interactive", nil, 2, 4},
		{"shell", "", nil, 2, 4},
		{"batch", "412.batch", nil, 2, 8},
		{"salloc", "", nil, 4, Absent},
		{"steppmix", "400021.0", nil, 2, 4},
		{"steppmix", "", nil, 2, 4},
		{"stephydra", "400023.2", nil, 2, 2},
		{"stephydra", "", nil, 2, 2},
		{"steported", "400023.1", nil, 1, 1},
		{"stephet", "400025.0+1", nil, 3, 3}, // the component's own number
		{"stephet", "", nil, 3, 3},
		{"none", "", nil, Absent, Absent},
	} {
		proc, env := hidden, environ(t, c.file)
		if c.daemon != "" {
			proc = below("/bin/bash", "slurmstepd: ["+c.daemon+"]")
		}
		got := Leftovers(env, proc.read)
		if (got == nil) != (c.want == nil) {
			t.Errorf("%s below %q: %v", c.file, c.daemon, got)
		}
		for name, value := range c.want {
			if is, found := got[name]; !found || is != value {
				t.Errorf("%s below %q: %s=%q (%v), want %q", c.file, c.daemon, name, is, found, value)
			}
		}
		after := Detect(variablesOf(lines(env, got)).get)
		if c.want != nil && (after.InStep() || after.StepID != "" ||
			Leftovers(lines(env, got), proc.read) != nil) {
			t.Errorf("%s below %q: still in a step: %v", c.file, c.daemon, got)
		}
		if after.Nodes != c.nodes || after.Tasks != c.tasks {
			t.Errorf("%s below %q: %d nodes, %d tasks, want %d, %d", c.file, c.daemon, after.Nodes,
				after.Tasks, c.nodes, c.tasks)
		}
	}
}

// TestLeftoversOfSameShape checks a case that only slurmstepd distinguishes: a job submitted by its
// predecessor, on the same number of nodes.
func TestLeftoversOfSameShape(t *testing.T) {
	env := append(environ(t, "steppmix"), "SLURM_STEP_GPUS=0", "SLURM_STEPMGR=node1")
	if got := Leftovers(env, below("sh",
		"slurmstepd: [400021.batch]").read); got["SLURM_STEP_ID"] != "" || len(got) == 0 {
		t.Errorf("in the batch script: %v", got)
	} else if _, found := got["SLURM_STEPMGR"]; found {
		t.Error("the job's SLURM_STEPMGR is dropped")
	}
	mpirun := append(env, "OMPI_COMM_WORLD_SIZE=2")
	if got := Leftovers(mpirun, below("orted", "slurmstepd: [400021.batch]").read); got == nil {
		t.Error("a rank of mpirun in the batch script keeps the step")
	} else if _, found := got["PMIX_RANK"]; found {
		t.Error("a rank of mpirun loses mpirun's own PMIX_RANK")
	}
	leaked := below("sh", "slurmstepd: [400006.batch]")
	told := append(environ(t, "leak"), "SLURM_NTASKS_PER_NODE=1") // from the step's srun
	if value, found := Leftovers(told, leaked.read)["SLURM_NTASKS_PER_NODE"]; !found || value != "" {
		t.Errorf("SLURM_NTASKS_PER_NODE=%s of the step stays", value)
	}
	if _, found := Leftovers(environ(t, "leak"), leaked.read)["SLURM_NTASKS_PER_NODE"]; found {
		t.Error("the job's SLURM_NTASKS_PER_NODE is dropped")
	}
}

func TestStepDaemon(t *testing.T) {
	loop := below("sh")
	loop["/proc/100/stat"] = "100 (sh) S 100 1"
	for _, c := range []struct {
		name      string
		proc      files
		job, step string
		found     bool
	}{
		{"a task", below("sh", "python", "slurmstepd: [7.12]", "slurmd"), "7", "12", true},
		{"a component", below("slurmstepd: [7+1.0+1]"), "7", "0", true},
		{"another form", below("slurmstepd: [s9XKQ]"), "", "", false},
		{"no number", below("slurmstepd: [x.0]"), "", "", false},
		{"none", below("sh", "sshd"), "", "", false},
		{"a loop", loop, "", "", false},
		{"no /proc", files{}, "", "", false},
	} {
		job, step, found := stepDaemon(c.proc.read)
		if found != c.found || found && (job != c.job || step != c.step) {
			t.Errorf("%s: %q, %q, %v", c.name, job, step, found)
		}
	}
}

func TestLeftoversNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := []string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0"}
		for _, name := range []string{
			"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS",
			"SLURM_JOB_NODELIST",
		} {
			env = append(env, name+"="+rapid.StringMatching(`[0-9a-z(x),\[\]-]{0,12}`).Draw(t, name))
		}
		Leftovers(env, func(string) ([]byte, error) {
			return []byte(rapid.String().Draw(t, "file")), nil
		})
	})
}

// lines returns environ with change applied.
func lines(environ []string, change map[string]string) []string {
	env := variablesOf(environ)
	maps.Copy(env, change)
	var out []string
	for name, value := range env {
		if value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}
