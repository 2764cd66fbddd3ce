package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// environment reads testdata/name.env, lines of NAME=value.
func environment(t *testing.T, name string) func(string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".env"))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if found {
			env[key] = value
		}
	}
	return func(key string) string { return env[key] }
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		file   string
		want   Job
		inStep bool
		host   string
	}{
		{"none", Job{"", "", Absent, Absent, Absent, Absent, Absent, Absent, 0, ""}, false, ""},
		{"batch", Job{"412", "", 0, 2, 8, 0, 0, 4, 1, "gpu[01-02]"}, false, "gpu01"},
		{"interactive", Job{"413", "4294967290", 0, 1, 1, 0, 0, Absent, 0, "gpu07"}, false, "gpu07"},
		{"salloc", Job{"414", "", Absent, 4, Absent, Absent, Absent, Absent, 0, "gpu[03,05-07]"}, false, "gpu03"},
		{"step", Job{"412", "3", 1, 2, 2, 1, 0, 3, 0, "gpu[01-02]"}, true, "gpu01"},
		{"garbage", Job{"x", "y", Absent, Absent, Absent, Absent, Absent, Absent, 0, "gpu["}, false, ""},
	} {
		got := Detect(environment(t, c.file))
		if got != c.want {
			t.Errorf("%s: Detect = %+v, want %+v", c.file, got, c.want)
		}
		if got.InStep() != c.inStep {
			t.Errorf("%s: InStep = %v, want %v", c.file, got.InStep(), c.inStep)
		}
		if got.FirstHost() != c.host {
			t.Errorf("%s: FirstHost = %q, want %q", c.file, got.FirstHost(), c.host)
		}
		if got.InJob() != (c.want.JobID != "") {
			t.Errorf("%s: InJob = %v", c.file, got.InJob())
		}
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"":                               "",
		"n1":                             "n1",
		"n1,n2":                          "n1",
		"n[001-128]":                     "n001",
		"n[7,9-11],m3":                   "n7",
		"login,n[1-2]":                   "login",
		"rack[2-3]node[01-40],rack9node": "rack2node01",
		"n[12]-ib":                       "n12-ib",
		"n[":                             "",
	} {
		if got := (Job{NodeList: list}).FirstHost(); got != want {
			t.Errorf("FirstHost(%q) = %q, want %q", list, got, want)
		}
	}
}

func TestTasksOn(t *testing.T) {
	for _, c := range []struct {
		list       string
		node, want int
	}{
		{"4(x2)", 1, 4},
		{"2(x2),3", 2, 3},
		{"2(x2),3", 3, Absent},
		{"1", 0, 1},
		{"", 0, Absent},
		{"x(x2)", 0, Absent},
		{"2(xq),3", 0, 3},
		{"-1", 0, Absent},
		{"1", Absent, Absent},
	} {
		if got := tasksOn(c.list, c.node); got != c.want {
			t.Errorf("tasksOn(%q, %d) = %d, want %d", c.list, c.node, got, c.want)
		}
	}
}

func TestDetectNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := Detect(func(string) string { return rapid.StringMatching(`[a-z0-9\[\],-]{0,12}`).Draw(t, "value") })
		job.InStep()
		if host := job.FirstHost(); strings.ContainsAny(host, ",[") {
			t.Fatalf("FirstHost(%q) = %q is no name", job.NodeList, host)
		}
	})
}
