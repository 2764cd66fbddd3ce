package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// environ returns testdata/name.env as lines of NAME=value.
func environ(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".env"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// environment is testdata/name.env as a function like os.Getenv.
func environment(t *testing.T, name string) func(string) string {
	t.Helper()
	return variablesOf(environ(t, name)).get
}

func TestDetect(t *testing.T) {
	const no = Absent
	// none is the result outside a job.
	none := Job{
		NodeID: no, Nodes: no, Tasks: no, ProcID: no, LocalID: no, LocalTasks: no, ArrayTaskID: no,
	}
	job := func(id string, set func(*Job)) Job {
		j := none
		j.JobID = id
		set(&j)
		return j
	}
	for _, c := range []struct {
		file   string
		want   Job
		inStep bool
		host   string
		counts []int
	}{
		{"none", none, false, "", nil},
		{"batch", job("412", func(j *Job) {
			j.NodeID, j.Nodes, j.Tasks, j.ProcID, j.LocalID, j.LocalTasks, j.RestartCount = 0, 2, 8, 0, 0, 4,
				1
			j.TasksPerNode, j.NodeList = "4(x2)", "gpu[01-02]"
		}), false, "gpu01", []int{4, 4}},
		{"interactive", job("413", func(j *Job) {
			j.StepID, j.NodeID, j.Nodes, j.Tasks, j.ProcID, j.LocalID, j.NodeList = "4294967290", 0, 1, 1, 0,
				0, "gpu07"
		}), false, "gpu07", nil},
		{"shell", job("400015", func(j *Job) {
			j.StepID, j.NodeID, j.Nodes, j.Tasks, j.ProcID, j.LocalID, j.LocalTasks = "4294967290", 0, 2, 4,
				0, 0, 2
			j.TasksPerNode, j.NodeList, j.NodeName = "2(x2)", "node[1-2]", "node1"
		}), false, "node1", []int{2, 2}},
		{
			"salloc", job("414", func(j *Job) { j.Nodes, j.NodeList = 4, "gpu[03,05-07]" }), false, "gpu03",
			nil,
		},
		{"step", job("412", func(j *Job) {
			j.StepID, j.NodeID, j.Nodes, j.Tasks, j.ProcID, j.LocalID, j.LocalTasks = "3", 1, 2, 2, 1, 0, 3
			j.TasksPerNode, j.NodeList = "1,3", "gpu[01-02]"
		}), true, "gpu01", []int{1, 3}},
		{"uneven", job("415", func(j *Job) {
			j.StepID, j.NodeID, j.Nodes, j.Tasks, j.ProcID, j.LocalID, j.LocalTasks = "0", 2, 3, 3, 2, 0, 1
			j.TasksPerNode, j.NodeList, j.NodeName = "1(x3)", "n[08-10]", "n10"
		}), true, "n08", []int{1, 1, 1}},
		{"array", job("5013", func(j *Job) {
			j.ArrayJobID, j.ArrayTaskID = "5011", 7
			j.NodeID, j.Nodes, j.Tasks, j.ProcID, j.LocalID, j.LocalTasks = 0, 1, 4, 0, 0, 4
			j.TasksPerNode, j.NodeList, j.NodeName = "4", "gpu07", "gpu07"
		}), false, "gpu07", []int{4}},
		{"het", job("700", func(j *Job) {
			j.NodeID, j.Nodes, j.ProcID, j.LocalID, j.NodeList, j.NodeName = 0, 2, 0, 0, "cpu[1-2]", "cpu1"
		}), false, "cpu1", nil},
		{"hetstep", job("700", func(j *Job) {
			j.StepID = "0"
			j.NodeID, j.Nodes, j.Tasks, j.ProcID, j.LocalID, j.LocalTasks = 2, 4, 16, 9, 1, 4
			j.TasksPerNode, j.NodeList, j.NodeName = "4(x4)", "gpu[01-04]", "gpu03"
		}), true, "gpu01", []int{4, 4, 4, 4}},
		{"mig", job("90", func(j *Job) {
			j.StepID, j.NodeID, j.Nodes, j.Tasks, j.ProcID, j.LocalID, j.LocalTasks = "1", 0, 1, 2, 1, 1, 2
			j.TasksPerNode, j.NodeList, j.NodeName = "2", "dgx1", "dgx1"
		}), true, "dgx1", []int{2}},
		{"garbage", job("x", func(j *Job) { j.StepID, j.NodeList = "y", "gpu[" }), false, "", nil},
	} {
		got := Detect(environment(t, c.file))
		if got != c.want {
			t.Errorf("%s: Detect =\n%+v, want\n%+v", c.file, got, c.want)
		}
		if got.InStep() != c.inStep {
			t.Errorf("%s: InStep = %v, want %v", c.file, got.InStep(), c.inStep)
		}
		if got.FirstHost() != c.host {
			t.Errorf("%s: FirstHost = %q, want %q", c.file, got.FirstHost(), c.host)
		}
		if counts := got.TaskCounts(); !slices.Equal(counts, c.counts) {
			t.Errorf("%s: TaskCounts = %v, want %v", c.file, counts, c.counts)
		}
		inJob, inArray := c.want.JobID != "", c.file == "array"
		if got.InJob() != inJob || got.InArray() != inArray {
			t.Errorf("%s: InJob, InArray = %v, %v", c.file, got.InJob(), got.InArray())
		}
	}
}

func TestCPUsHere(t *testing.T) {
	for file, want := range map[string]int{"none": Absent, "shell": 2, "uneven": 36, "array": 32} {
		env := environment(t, file)
		if got := Detect(env).cpusHere(env); got != want {
			t.Errorf("%s: %d CPUs, want %d", file, got, want)
		}
	}
}

func TestAllocatedNodes(t *testing.T) {
	in := variables{"SLURM_JOB_NUM_NODES": "4", "SLURM_STEP_NUM_NODES": "2"}
	if n := AllocatedNodes(in.get); n != 4 {
		t.Errorf("in a step: %d", n)
	}
	if n := AllocatedNodes(variables{}.get); n != 0 {
		t.Errorf("outside Slurm: %d", n)
	}
}

func TestRunLengthLists(t *testing.T) {
	for _, c := range []struct {
		list       string
		node, want int
		all        []int
	}{
		{"4(x2)", 1, 4, []int{4, 4}},
		{"2(x2),3", 2, 3, []int{2, 2, 3}},
		{"2(x2),3", 3, Absent, []int{2, 2, 3}},
		{"1", 0, 1, []int{1}},
		{"0", 0, 0, []int{0}},
		{"", 0, Absent, nil},
		{"x(x2)", 0, Absent, nil},
		{"2(xq),3", 0, Absent, nil},
		{"2(x2,3", 0, Absent, nil},
		{"2(x0),3", 0, Absent, nil},
		{"5,2(x-1)", 0, 5, nil},
		{"1(x70000)", 69999, 1, nil},
		{"1,4(x9223372036854775807)", 1, 4, nil},
		{"-1", 0, Absent, nil},
		{"1", Absent, Absent, []int{1}},
	} {
		if got := entry(c.list, c.node); got != c.want {
			t.Errorf("entry(%q, %d) = %d, want %d", c.list, c.node, got, c.want)
		}
		if got := (Job{TasksPerNode: c.list}).TaskCounts(); !slices.Equal(got, c.all) {
			t.Errorf("TaskCounts(%q) = %v, want %v", c.list, got, c.all)
		}
	}
}

func TestDetectNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := Detect(func(string) string {
			return rapid.StringMatching(`[a-z0-9\[\],-]{0,12}`).Draw(t, "value")
		})
		job.InStep()
		if host := job.FirstHost(); strings.ContainsAny(host, ",[") {
			t.Fatalf("FirstHost(%q) = %q is not a name", job.NodeList, host)
		}
	})
}
