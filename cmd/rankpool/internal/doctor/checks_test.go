package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"rankpool/staging/posix"
)

func TestHealthyMachineIsGood(t *testing.T) {
	env, m := healthy(t)
	found, err := Run(t.Context(), env, Checks())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range found {
		seen[f.Check] = true
		if f.Status != Good || f.Detail == "" || f.Advice != "" {
			t.Errorf("%+v", f)
		}
		if strings.Count(f.Detail, nothingYet) != len(f.Sizes) {
			t.Errorf("%d sizes for %q", len(f.Sizes), f.Detail)
		}
	}
	for _, c := range Checks() {
		if c.Scope != Between && !seen[c.Name] {
			t.Errorf("check %s has no finding", c.Name)
		}
	}
	if want := []string{"PYTHONPATH=/dev/shm/x/python"}; !slices.Equal(m.lastEnv, want) {
		t.Errorf("Python got %q, want %q", m.lastEnv, want)
	}
}

// TestOnceIsAtRankZero checks that one rank queries a server, not a thousand.
func TestOnceIsAtRankZero(t *testing.T) {
	env, _ := healthy(t)
	env.Rank = 1
	found, err := Run(t.Context(), env, Checks())
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, f := range found {
		at := slices.IndexFunc(Checks(), func(c Check) bool { return c.Name == f.Check })
		if Checks()[at].Scope != EachNode {
			t.Errorf("rank 1 made %s", f.Check)
		}
	}
}

func TestChecks(t *testing.T) {
	boom := errors.New("boom")
	type change = func(env *Env, m *fakeMachine)
	variable := func(name, value string) change {
		return func(_ *Env, m *fakeMachine) { m.vars[name] = value }
	}
	program := func(line, text string) change {
		return func(_ *Env, m *fakeMachine) { m.programs[line] = text }
	}
	python := func(from, to string) change {
		return program("python3", strings.Replace(healthyPython, from, to, 1))
	}
	none := func(*Env, *fakeMachine) {}
	clears := program("loginctl show-session --property=RemoveIPC", "RemoveIPC=yes\n")
	unset := func(name string) change { return func(_ *Env, m *fakeMachine) { delete(m.vars, name) } }
	both := func(changes ...change) change {
		return func(e *Env, m *fakeMachine) {
			for _, c := range changes {
				c(e, m)
			}
		}
	}
	arrays := filepath.Join(t.TempDir(), "x.h5")
	if err := os.WriteFile(arrays, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		check          string
		change         change
		want           Status
		detail, advice string // parts
	}{
		{"mpi", none, Good, "rankpool 1.0 with Open MPI v4.1.4 (/lib/libmpi.so.40, since mpirun is " +
			"Open MPI's), thread level MPI_THREAD_SERIALIZED", ""},
		{
			"mpi", func(e *Env, _ *fakeMachine) { e.MPI = MPI{Missing: boom} }, Bad,
			"ranks cannot find each other: boom", "load an MPI module",
		},
		{"mpi", func(e *Env, _ *fakeMachine) {
			e.MPI, e.Launch.Tasks, e.Job.Nodes = MPI{Missing: boom}, 0,
				1
		}, Warning, "one rank only: boom", "load an MPI module"},
		{
			"mpi", func(e *Env, _ *fakeMachine) { e.MPI.Failure = boom }, Bad, "does not start: boom",
			"module",
		},
		{"mpi", func(e *Env, _ *fakeMachine) {
			e.MPI.Level, e.MPI.Probe = "", func() (string, error) { return "", boom }
		}, Bad, "does not start: boom", "module"},
		{"mpi", func(e *Env, _ *fakeMachine) {
			e.MPI.Level, e.MPI.Probe = "", func() (string, error) { return "MPI_THREAD_MULTIPLE", nil }
		}, Good, "MPI_THREAD_MULTIPLE", ""},

		{"launcher", none, Good, "srun --mpi=pmix started 4 ranks", ""},
		{
			"launcher", func(e *Env, _ *fakeMachine) { e.Launch.Failure = boom }, Bad, "boom",
			"one node only",
		},
		{
			"launcher", func(e *Env, _ *fakeMachine) { e.Launch.Tasks = 0 }, Warning,
			"one of the job's 4 nodes", "srun --mpi=pmix --ntasks-per-node=1 rankpool doctor",
		},
		{
			"launcher", func(e *Env, _ *fakeMachine) { e.Launch.Tasks, e.Job.JobID = 0, "" }, Good,
			"started by hand", "",
		},

		{"slurm", none, Good, "slurm 23.11.4, job 7", ""},
		{
			"slurm", func(_ *Env, m *fakeMachine) { delete(m.programs, "srun --version") }, Warning,
			"srun cannot be run", "$PATH",
		},
		{
			"slurm", func(e *Env, m *fakeMachine) { e.Job.JobID = ""; m.failing["srun --version"] = boom },
			Good, "or knows no cluster", "",
		},
		{
			"slurm", func(e *Env, m *fakeMachine) { e.Job.JobID = ""; m.programs = nil }, Good,
			"srun is not there", "",
		},

		{"slurm", none, Good, "--mpi=pmix", ""},
		{
			"slurm", program("srun --mpi=list", "MPI plugin types are...\n none pmix_v3"), Good,
			"--mpi=pmix", "",
		},
		{
			"slurm", program("srun --mpi=list", "MPI plugin types are...\n none pmi2"), Bad,
			"no --mpi=pmix", "mpirun",
		},

		{"cpus", none, Good, "may be used: 8", ""},
		{"cpus", func(_ *Env, m *fakeMachine) { m.allowed = 1 }, Warning, "one CPU", "--bind-to"},
		{"cpus", func(_ *Env, m *fakeMachine) { m.threads = 1 }, Warning, "GOMAXPROCS", "--cpus-per"},

		{"memory", none, Good, "the machine's available memory", ""},
		{"memory", func(e *Env, _ *fakeMachine) { e.MemoryBytes = 61 << 30 }, Bad, "less than", "--mem"},
		{
			"memory", func(e *Env, _ *fakeMachine) { e.MemoryBytes = 59 << 30 }, Warning, "hardly more",
			"--mem",
		},
		{"memory", func(e *Env, _ *fakeMachine) { e.Launch.LocalTasks = 2 }, Bad, "less than", "--mem"},
		{"memory", variable("SLURM_MEM_PER_NODE", "16384"), Bad, "SLURM_MEM_PER_NODE", "--mem"},
		{"memory", func(e *Env, m *fakeMachine) {
			e.MemoryBytes, m.files["/proc/meminfo"] = 0, "MemTotal: 67108864 kB\nMemAvailable: 1000000 kB\n"
		}, Warning, "may still be used", "--mem"},

		{"shm", none, Good, "are free", ""},
		{"shm", func(_ *Env, m *fakeMachine) {
			m.mounts["/dev/shm"] = FileSystem{
				Bytes: 64 << 20, FreeBytes: 64 << 20,
			}
		}, Warning, "DataLoader", "--shm-size"},
		{
			"shm", func(_ *Env, m *fakeMachine) { delete(m.mounts, "/dev/shm") }, Warning, "cannot be used",
			"tmpfs",
		},

		{"limits", none, Good, "1024", ""},
		{"limits", program("sh", "unlimited\nunlimited\n"), Good, "unlimited", ""},
		{"limits", program("sh", "512\n4096\n"), Warning, "512", "ulimit -n 4096"},
		{"limits", program("sh", "128\n128\n"), Bad, "128", "nofile"},

		{"runtime", none, Good, "at most 39 of 107 bytes", ""},
		{
			"runtime", func(e *Env, _ *fakeMachine) { e.Runtime.Failure = boom }, Bad, "boom",
			"--runtime-dir",
		},
		{
			"runtime", func(e *Env, _ *fakeMachine) { e.Runtime.SocketPath = strings.Repeat("x", 108) }, Bad,
			"108 bytes", "shorter",
		},
		{
			"runtime", func(e *Env, _ *fakeMachine) { e.Runtime.SocketPath = strings.Repeat("x", 107) },
			Good, "107", "",
		},
		{
			"runtime", func(e *Env, _ *fakeMachine) { e.Runtime.Base = "/data" }, Warning, "lustre",
			"node-local",
		},
		{"runtime", clears, Warning, "RemoveIPC=yes", "--runtime-dir"},
		{"runtime", both(clears, func(_ *Env, m *fakeMachine) { m.user = 0 }), Good, "sessions", ""},
		{
			"runtime", both(clears, func(e *Env, _ *fakeMachine) { e.Runtime.Base = "/tmp" }), Good,
			"sessions", "",
		},

		{"tier", none, Good, "/tier (ext4) has {} free", ""},
		{
			"tier", func(env *Env, _ *fakeMachine) { env.Tier.Unusable = boom }, Warning,
			"boom; training continues without a tier", "mode 1777",
		},
		{
			"tier", func(env *Env, _ *fakeMachine) { env.Tier.Bytes = 1 << 40 }, Warning,
			"{} free, and {} may be filled", "--tier DIR:SIZE",
		},

		{"data", none, Good, "/data is on lustre", ""},
		{
			"data", func(_ *Env, m *fakeMachine) { delete(m.mounts, "/data") }, Bad,
			"/data: file does not exist", "mounted",
		},
		{"data", func(_ *Env, m *fakeMachine) {
			m.mounts["/data"] = FileSystem{
				Type: "ext4", Reach: posix.Disk,
			}
		}, Warning, "this node alone", "shared"},

		{"data", none, Good, "/data/rankpool.parquet; 2 of its files can be opened", ""},
		{
			"data", func(_ *Env, m *fakeMachine) { m.manifest = "" }, Warning, "scans all folders",
			"rankpool index /data -o data.parquet",
		},
		{
			"data", func(_ *Env, m *fakeMachine) { m.noManifest = boom }, Bad, "cannot be used: boom",
			"--data takes a folder, or a manifest",
		},
		{
			"data", func(e *Env, m *fakeMachine) {
				e.Data, m.mounts[arrays], m.noManifest = []string{arrays}, FileSystem{}, boom
			}, Bad, "are not files", "--rows ROWS -o x.parquet",
		},
		{"data", func(_ *Env, m *fakeMachine) { m.noRead = boom }, Bad, "boom", "complete"},
		{"data", func(_ *Env, m *fakeMachine) { // such a file is not read
			m.noRead, m.archived = boom, m.samples
		}, Bad, "2 of 2 files", "hsm_restore"},

		{"python", none, Good, "Python 3.11.2 (/usr/bin/python3), PyTorch 2.4.0, with GPUs; training " +
			"uses its own client", ""},
		{
			"python", func(e *Env, _ *fakeMachine) { e.Python.Path = "" }, Good,
			"the client in /dev/shm/x/python/rankpool", "",
		},
		{"python", program("python3", "a module says hello\n"+healthyPython), Good, "3.11.2", ""},
		{
			"python", python(`"cuda": true`, `"cuda": false`), Warning,
			"(CUDA_VISIBLE_DEVICES=0,1), but PyTorch 2.4.0, with CUDA 12.4, sees none", "torch.cuda.init",
		},
		{
			"python", python(`"cuda": true, "cuda_compiled": "12.4"`, `"cuda": false, "cuda_compiled": ""`),
			Warning, "built without CUDA", "--python",
		},
		{
			"python", both(unset("CUDA_VISIBLE_DEVICES"), python(`"cuda": true`, `"cuda": false`)), Good,
			"without a GPU", "",
		},
		{
			"python", python(`"torch": "2.4.0"`, `"torch_error": "ModuleNotFoundError: torch"`), Warning,
			"cannot import torch", "module",
		},
		{
			"python", python(`"client":`, `"client_error":`), Bad, "cannot import rankpool",
			"RANKPOOL_PYTHON",
		},
		{"python", python("[3, 11, 2]", "[3, 8, 1]"), Bad, "older than 3.9", "--python"},
		{"python", program("python3", "Illegal instruction"), Bad, "Illegal", "by hand"},
		{"python", func(_ *Env, m *fakeMachine) {
			m.failing["python3"], m.programs["python3"] = boom,
				""
		}, Bad, "boom", "by hand"},
		{
			"python", func(e *Env, _ *fakeMachine) { e.Python.Command = "python9" }, Warning,
			"python9 not found",
			"--python",
		},
		{
			"python", func(e *Env, _ *fakeMachine) { e.Python = Python{Command: "python9", Given: true} },
			Bad, "python9 not found", "--python",
		},
		{
			"python", func(e *Env, _ *fakeMachine) { e.Python.Failure = boom }, Bad, "boom",
			"--runtime-dir",
		},
	} {
		env, m := healthy(t)
		c.change(env, m)
		checks, err := Select([]string{c.check})
		if err != nil {
			t.Fatal(err)
		}
		found, err := Run(t.Context(), env, checks)
		if err != nil {
			t.Fatal(err)
		}
		if Worst(found) != c.want || !slices.ContainsFunc(found, func(f Finding) bool {
			return f.Status == c.want && strings.Contains(f.Detail, c.detail) &&
				strings.Contains(f.Advice, c.advice) &&
				(c.want == Good || f.Advice != "")
		}) {
			t.Errorf("%s: %+v, want %s with %q and %q", c.check, found, c.want, c.detail, c.advice)
		}
	}
}

func TestDataSetsAreNamed(t *testing.T) {
	env, m := healthy(t)
	m.mounts["/more/val"] = FileSystem{Type: "nfs", Reach: posix.Shared}
	env.Data = []string{"/data", "/more/val"}
	found := checkData(env)
	if len(found) != 4 || found[0].Detail != "data: /data is on lustre" ||
		found[2].Detail != "val: /more/val is on nfs" {
		t.Errorf("%+v", found)
	}
}

// TestHangingCheck checks that a check that hangs is abandoned, and is a bad finding; the next
// check runs.
func TestHangingCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		checks := []Check{
			{
				Name: "data", Scope: EachNode,
				find: func(*Env) []Finding { <-release; return nil },
			},
			{Name: "next", Scope: EachNode, find: func(*Env) []Finding { return good("fine") }},
		}
		found, err := Run(t.Context(), &Env{}, checks)
		if err != nil || len(found) != 2 || found[1].Check != "next" || found[0].Status != Bad ||
			found[0].Check != "data" || !strings.Contains(found[0].Detail, "not answered in 15s") {
			t.Error(found, err)
		}
	})
}

func TestSelect(t *testing.T) {
	all, err := Select(nil)
	if err != nil || len(all) != len(Checks()) {
		t.Fatal(len(all), err)
	}
	some, err := Select([]string{"python", "mpi"})
	if err != nil || !slices.Equal(checkNames(some), []string{"mpi", "python"}) {
		t.Error(checkNames(some), err)
	}
	if _, err := Select([]string{"nonsense"}); err == nil ||
		!strings.Contains(err.Error(), "choose from mpi, ") {
		t.Error(err)
	}
}

// TestWithoutData checks that nothing is found where nothing was named.
func TestWithoutData(t *testing.T) {
	env, _ := healthy(t)
	env.Data, env.Tier = nil, nil
	checks, err := Select([]string{"data", "tier"})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := Run(t.Context(), env, checks); len(found) > 0 || err != nil {
		t.Error(found, err)
	}
}

// TestFewChecks checks that the list stays short: a check decides whether a run starts, fails or is
// slow for a known reason.
func TestFewChecks(t *testing.T) {
	const most = 14
	if n := len(Checks()); n > most {
		t.Errorf("%d checks, at most %d", n, most)
	}
	for _, c := range Checks() {
		if (c.find == nil) != (c.Scope == Between) {
			t.Errorf("check %s of scope %q", c.Name, c.Scope)
		}
	}
}

// TestDocumented checks that the table in docs/start.md lists the checks.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/start.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, c := range Checks() {
		want.WriteString("| `" + c.Name + "` | " + string(c.Scope) + " | " + c.About + " |\n")
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/start.md lacks this table:\n%s", want.String())
	}
}
