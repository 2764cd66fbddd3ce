package launch

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/door"
	"rankpool/mpicache/door/doortest"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
)

// env returns a function like os.Getenv over lines.
func env(lines ...string) func(string) string { return world.Lookup(lines) }

func TestChooseForm(t *testing.T) {
	batch := slurm.Job{JobID: "1", Nodes: 2}
	small := slurm.Job{JobID: "1", Nodes: 1}
	step := slurm.Job{JobID: "1", StepID: "0", Nodes: 1}
	for _, c := range []struct {
		name  string
		job   slurm.Job
		at    world.Place
		given bool
		want  form
	}{
		{"by hand", slurm.Job{}, world.Place{}, false, formLocal},
		{"batch script", batch, world.Place{}, false, formSlurm},
		{"batch script, --ranks", batch, world.Place{}, true, formSlurm},
		{"one node", small, world.Place{}, false, formSlurm},
		{"one node, --ranks", small, world.Place{}, true, formLocal},
		{"a task alone", step, world.Place{Tasks: 1}, false, formLocal},
		{"one of many tasks", step, world.Place{Tasks: 4}, false, formTask},
		{"mpirun", slurm.Job{}, world.Place{Tasks: 4}, true, formTask},
	} {
		if got := chooseForm(c.job, c.at, c.given); got != c.want {
			t.Errorf("%s: form %d, want %d", c.name, got, c.want)
		}
	}
}

func testOptions() *Options {
	o := &Options{
		launched: "once", self: "/bin/rankpool", Command: []string{"python", "train.py"},
	}
	o.Register(pflag.NewFlagSet("run", pflag.ContinueOnError))
	o.ranks, o.trainersPerRank = 2, 2
	o.cache.Data, o.cache.Log = []string{"train=/d"}, "/l"
	return o
}

// TestOptionsReachRanks checks that a rank gets what run was told.
func TestOptionsReachRanks(t *testing.T) {
	o := testOptions()
	o.indexes.Identities = []string{"train=abc"}
	got, err := rank.Given(world.Lookup(o.serveEnv([]string{"A=1"}, "/s", true)))
	if err != nil {
		t.Fatal(err)
	}
	if got.Session != "/s" || got.Launch != "once" || got.World != 2 || !got.Together ||
		!slices.Equal(got.Identities, []string{"train=abc"}) ||
		!slices.Equal(got.Data, []string{"train=/d"}) || got.Log != "/l" || got.Memory != "auto" ||
		got.RankTimeout != 2*time.Minute {
		t.Errorf("a rank gets %+v", got)
	}
}

func TestSlurmLayout(t *testing.T) {
	job := slurm.Job{JobID: "7", Nodes: 2, NodeID: 0, NodeList: "n[1-2]"}
	l := testOptions().slurmLayout(job, "/s", []string{"A=1"})
	cache := strings.Join(l.cache.args, " ")
	for _, part := range []string{
		"srun --overlap ", " --nodes=2 --ntasks=2 --ntasks-per-node=1 ",
		" --kill-on-bad-exit=1 ", " /bin/rankpool serve",
	} {
		if !strings.Contains(cache, part) {
			t.Errorf("%q misses %q", cache, part)
		}
	}
	if of, err := rank.Given(world.Lookup(l.cache.env)); err != nil || of.Session != "/s" {
		t.Errorf("the ranks' options are %+v: %v", of, err)
	}
	if len(l.trainers) != 1 || !slices.Equal(l.folders, []string{"/s/r0"}) || !l.restart ||
		l.end == nil {
		t.Errorf("layout %+v", l)
	}
	train := strings.Join(l.trainers[0].args, " ")
	if !strings.HasPrefix(train, "srun --overlap ") ||
		!strings.HasSuffix(train, " /bin/rankpool join --session /s -- python train.py") {
		t.Errorf("training step: %q", train)
	}
	get := world.Lookup(l.trainers[0].env)
	if get("A") != "1" || get("MASTER_ADDR") != "n1" || get("MASTER_PORT") == "" ||
		get("RANKPOOL_SESSION") != "/s" {
		t.Errorf("training step's environment: %q", l.trainers[0].env)
	}
}

func TestTaskLayout(t *testing.T) {
	job := slurm.Job{JobID: "7", StepID: "1", NodeList: "n[1-2]"}
	at := world.Place{Tasks: 2, Task: 1, LocalTasks: 1, LocalTask: 0, By: world.BySrunPMIx}
	l := testOptions().taskLayout(job, at, "/s", "",
		[]string{"PMIX_RANK=1", "SLURM_PROCID=1", "MASTER_PORT=99"})
	if got := world.Lookup(l.cache.env)("PMIX_RANK"); got != "1" {
		t.Errorf("the rank has PMIX_RANK=%q", got)
	}
	if l.restart || l.reports || !slices.Equal(l.folders, []string{"/s/r1"}) ||
		len(l.trainers) != 2 {
		t.Errorf("layout %+v", l)
	}
	get := world.Lookup(l.trainers[1].env)
	for name, want := range map[string]string{
		"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
		"MASTER_ADDR": "n1", "MASTER_PORT": "99",
		"RANKPOOL_SOCKET": "/s/r1/door.sock", "PMIX_RANK": "", "SLURM_PROCID": "1",
		"PYTHONPATH": "",
	} {
		if got := get(name); got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
}

// TestLocalTorchrun checks that torchrun, the only trainer of a machine, has a port of its own, and
// that trainers do not.
func TestLocalTorchrun(t *testing.T) {
	o := testOptions()
	o.ranks, o.trainersPerRank = 1, 1
	for trainers, own := range map[int]bool{1: true, 2: false} {
		o.trainersPerRank = trainers
		l, err := o.localLayout("/s", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		get := world.Lookup(l.trainers[0].env)
		if (get("PET_MASTER_PORT") == get("MASTER_PORT")) != own {
			t.Errorf("%d trainers: PET_MASTER_PORT=%s, MASTER_PORT=%s", trainers,
				get("PET_MASTER_PORT"), get("MASTER_PORT"))
		}
	}
}

func TestRendezvous(t *testing.T) {
	several, one := world.Place{Tasks: 4, LocalTasks: 1, By: world.ByOpenMPI},
		world.Place{Tasks: 4, LocalTasks: 4, By: world.ByOpenMPI}
	for _, c := range []struct {
		name string
		at   world.Place
		job  slurm.Job
		env  []string
		fine bool
	}{
		{"several machines", several, slurm.Job{}, nil, false},
		{"no port", several, slurm.Job{}, []string{"MASTER_ADDR=a"}, false},
		{"told by the user", several, slurm.Job{}, []string{"MASTER_ADDR=a", "MASTER_PORT=1"}, true},
		{"told by Slurm", several, slurm.Job{JobID: "1"}, nil, true},
		{"one machine", one, slurm.Job{}, nil, true},
	} {
		if err := checkRendezvous(c.at, c.job, world.Lookup(c.env)); (err == nil) != c.fine {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTrainerEnv(t *testing.T) {
	base := []string{"PYTHONPATH=/mine", "OMP_NUM_THREADS=3", "RANK=9"}
	get := world.Lookup(
		trainerEnv(base, seat{rank: 1, world: 2, threads: 8}, "/s", "/s/r1", "/s/python"))
	for name, want := range map[string]string{
		"PYTHONPATH":      "/s/python:/mine",
		"OMP_NUM_THREADS": "3", "RANK": "1",
	} {
		if got := get(name); got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	get = world.Lookup(trainerEnv(nil, seat{threads: 8}, "/s", "/s/r1", "/s/python"))
	if get("PYTHONPATH") != "/s/python" || get("OMP_NUM_THREADS") != "8" {
		t.Errorf("from nothing: %q, %q", get("PYTHONPATH"), get("OMP_NUM_THREADS"))
	}
}

func TestExtractClient(t *testing.T) {
	dir := t.TempDir()
	path, err := ExtractClient(dir, env())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + "/rankpool/__init__.py"); err != nil || info.Size() == 0 {
		t.Errorf("the client's __init__.py: %v", err)
	}
	if again, err := ExtractClient(dir, env()); err != nil || again != path {
		t.Errorf("a second time: %q, %v", again, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	if path, err := ExtractClient(t.TempDir(), env("RANKPOOL_PYTHON=no")); path != "" ||
		err != nil {
		t.Errorf("switched off: %q, %v", path, err)
	}
}

func TestAgreedPort(t *testing.T) {
	step := world.Place{Tasks: 2, By: world.BySrunPMIx}
	mpirun := world.Place{Tasks: 2, By: world.ByOpenMPI}
	a, b := slurm.Job{JobID: "1", StepID: "0"}, slurm.Job{JobID: "2", StepID: "0"}
	batch := slurm.Job{JobID: "1"}
	for _, c := range []struct {
		name string
		x, y string
		same bool
	}{
		{
			"tasks of a step", launchKey(step, a, env("SLURM_PROCID=0")),
			launchKey(step, a, env("SLURM_PROCID=1")), true,
		},
		{"two jobs", launchKey(step, a, env()), launchKey(step, b, env()), false},
		{
			"two steps", launchKey(step, a, env()),
			launchKey(step, slurm.Job{JobID: "1", StepID: "1"}, env()), false,
		},
		{
			"mpirun's first node and another", launchKey(mpirun, batch, env("PMIX_NAMESPACE=7")),
			launchKey(mpirun, a, env("PMIX_NAMESPACE=7")), true,
		},
		{
			"two mpirun", launchKey(mpirun, batch, env("PMIX_NAMESPACE=7")),
			launchKey(mpirun, batch, env("PMIX_NAMESPACE=8")), false,
		},
	} {
		if same := agreedPort(c.x) == agreedPort(c.y); same != c.same {
			t.Errorf("%s: same port %v, want %v", c.name, same, c.same)
		}
	}
	for parent := range 1000 {
		if p := agreedPort(strconv.Itoa(parent)); p < 20000 || p >= 30000 {
			t.Fatalf("port %d", p)
		}
	}
}

func TestFirstHost(t *testing.T) {
	job := slurm.Job{JobID: "1", NodeList: "n[1-4]"}
	for _, c := range []struct{ by, list, want string }{
		{world.BySrunPMIx, "n[3-4]", "n3"},
		{world.BySrunPMIx, "", "n1"},
		{world.ByOpenMPI, "n[2-4]", "n1"}, // the step is that of mpirun's daemons
	} {
		if got := firstHost(world.Place{Tasks: 2, By: c.by}, job,
			env("SLURM_STEP_NODELIST="+c.list)); got != c.want {
			t.Errorf("%s with the step's list %q: %q, want %q", c.by, c.list, got, c.want)
		}
	}
}

func TestCacheStep(t *testing.T) {
	batch := []string{
		"A=1", "SLURM_GPUS_PER_NODE=a100:4", "SLURM_CPUS_PER_TASK=8",
		"SLURM_MEM_PER_GPU=9", "SLURM_NTASKS_PER_NODE=4",
	}
	if got := world.WithoutTaskOptions(batch); !slices.Equal(got,
		[]string{"A=1", "SLURM_MEM_PER_GPU=9"}) {
		t.Errorf("without the tasks' options: %q", got)
	}
	for _, c := range []struct{ set, want string }{
		{"SLURM_CPUS_PER_TASK=8", "ring"},
		{"SLURM_PMIX_FENCE=tree", "tree"},
	} {
		get := world.Lookup(cacheStepEnv([]string{c.set}))
		if get("SLURM_PMIX_FENCE") != c.want || get("SLURM_CPUS_PER_TASK") != "" {
			t.Errorf("%s: the cache's step has SLURM_PMIX_FENCE=%s", c.set, get("SLURM_PMIX_FENCE"))
		}
	}
	for _, c := range []struct{ gpus, version, want string }{
		{"a100:4", "22.05.8", "--gpus-per-node=a100:4"},
		{"4", "23.11.4", "--gpus-per-node=4"},
		{"4", "21.08.5", "--gres=none"},
		{"4", "", "--gres=none"},
		{"", "22.05.8", "--gres=none"},
	} {
		if got := cacheGPUs(env("SLURM_GPUS_PER_NODE="+c.gpus), c.version); got != c.want {
			t.Errorf("cacheGPUs(%q, %q) = %q, want %q", c.gpus, c.version, got, c.want)
		}
	}
}

func TestTrainingStep(t *testing.T) {
	job := slurm.Job{JobID: "7", NodeList: "n[1-2]"}
	set := trainingStep(job, env("SLURM_CPUS_PER_TASK=8", "MASTER_PORT=99"), "/s")
	for name, want := range map[string]string{
		"SRUN_CPUS_PER_TASK": "8", "MASTER_ADDR": "n1",
		"MASTER_PORT": "", "RANKPOOL_SESSION": "/s",
	} {
		if set[name] != want {
			t.Errorf("%s=%q, want %q", name, set[name], want)
		}
	}
	if cpus, set := trainingStep(job, env("SLURM_CPUS_PER_TASK=8", "SRUN_CPUS_PER_TASK=3"),
		"/s")["SRUN_CPUS_PER_TASK"]; set {
		t.Errorf("the user's SRUN_CPUS_PER_TASK becomes %q", cpus)
	}
}

func TestJoinEnv(t *testing.T) {
	step := []string{
		"SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURM_STEP_NUM_NODES=2",
		"SLURM_NODEID=1", "SLURM_JOB_NODELIST=n[1-2]",
	}
	one := append(slices.Clone(step), "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1",
		"SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_LOCALID=0", "MASTER_PORT=99")
	four := append(slices.Clone(step), "SLURM_STEP_NUM_TASKS=8", "SLURM_PROCID=6",
		"SLURM_STEP_TASKS_PER_NODE=4(x2)", "SLURM_LOCALID=2")
	alone := []string{
		"SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURM_STEP_NUM_NODES=1",
		"SLURM_STEP_NUM_TASKS=1", "SLURM_NODEID=0", "MASTER_PORT=99",
	}
	for _, c := range []struct {
		name string
		env  []string
		want map[string]string
	}{
		{"one task a node", one, map[string]string{
			"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "n1",
			"RANKPOOL_SOCKET": "/s/r1/door.sock",
			"PET_NNODES":      "2", "PET_NODE_RANK": "1", "PET_RDZV_BACKEND": "c10d",
			"PET_RDZV_ENDPOINT": "n1:99",
		}},
		{"four tasks a node", four, map[string]string{
			"RANK": "6", "WORLD_SIZE": "8",
			"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "PET_NNODES": "",
		}},
		{"one node", alone, map[string]string{"PET_NNODES": "", "PET_MASTER_PORT": "99"}},
		{
			"one node, and torchrun was told", append(slices.Clone(alone), "PET_MASTER_PORT=98"),
			map[string]string{"PET_MASTER_PORT": "98"},
		},
		{
			"torchrun was told", append(slices.Clone(one), "PET_NNODES=1"),
			map[string]string{"PET_NNODES": "1", "PET_RDZV_ENDPOINT": ""},
		},
	} {
		get := world.Lookup(joinEnv(c.env, slurm.Detect(world.Lookup(c.env)), "", "/s", "/s/r1", ""))
		for name, want := range c.want {
			if got := get(name); got != want {
				t.Errorf("%s: %s=%q, want %q", c.name, name, got, want)
			}
		}
	}
}

// TestJoinAJob checks that a training with a name passes it on, and has ports of its own.
func TestJoinAJob(t *testing.T) {
	env := []string{"SLURM_JOB_ID=5", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_STEP_ID=1"}
	ports := map[string]bool{}
	for _, name := range []string{"", "a", "b"} {
		get := world.Lookup(joinEnv(env, slurm.Detect(world.Lookup(env)), name, "/s", "/s/r0", ""))
		if got := get("RANKPOOL_JOB"); got != name {
			t.Errorf("RANKPOOL_JOB=%q for job %q", got, name)
		}
		ports[get("MASTER_PORT")] = true
	}
	if len(ports) != 3 {
		t.Errorf("three trainings meet at %d ports", len(ports))
	}
}

func TestAwaitRank(t *testing.T) {
	dir := t.TempDir()
	for _, rank := range []int{1, 3} { // rank 1 has died
		folder := session.RankFolder(dir, rank)
		if err := errors.Join(os.Mkdir(folder, 0o700),
			os.WriteFile(filepath.Join(folder, session.ReadyName), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(session.RankFolder(dir, 3), session.DoorName)
	doortest.ListenAt(t, path, func(conn net.Conn) {
		doortest.Answer(conn, func(door.Kind) ([]byte, bool) { return nil, true }, nil)
	})
	for _, c := range []struct {
		node, nodes int // of the step
		folder      string
		ready       bool
	}{
		{3, 4, "r3", true},
		{1, 2, "r3", true}, // a step on a part of the allocation counts its own nodes
		{1, 4, "r1", false},
		{0, 4, "r0", false},
	} {
		folder, ready := awaitRank(dir, slurm.Job{NodeID: c.node, Nodes: c.nodes}, 4, 0)
		if filepath.Base(folder) != c.folder || ready != c.ready {
			t.Errorf("node %d of %d: %s, %v", c.node, c.nodes, folder, ready)
		}
	}
}

func TestMPIRun(t *testing.T) {
	if got := strings.Join(mpirunArgs("mpirun", 4, []string{"rankpool", "serve"}),
		" "); got != "mpirun -n 4 rankpool serve" {
		t.Errorf("the command is %q", got)
	}
	root := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	if env := mpirunEnv([]string{"SLURM_JOB_ID=1"}, 0, mpilib.MPICH,
		"/dev/shm/s"); !slices.Equal(env, root) {
		t.Errorf("MPICH, as root: %q", env)
	}
	if env := mpirunEnv(nil, 1000, mpilib.MPICH, "/dev/shm/s"); len(env) != 0 {
		t.Errorf("MPICH, as a user: %q", env)
	}
	get := world.Lookup(
		mpirunEnv([]string{"OMPI_MCA_hwloc_base_binding_policy=core", "OMPI_MCA_btl=self,vader"}, 0,
			mpilib.OpenMPI, "/dev/shm/s"))
	for name, want := range map[string]string{
		"OMPI_ALLOW_RUN_AS_ROOT":                "1",
		"OMPI_MCA_btl":                          "self,vader",
		"OMPI_MCA_rmaps_base_oversubscribe":     "1",
		"OMPI_MCA_hwloc_base_binding_policy":    "none",
		"OMPI_MCA_orte_tmpdir_base":             "/dev/shm/s",
		"OMPI_MCA_btl_vader_backing_directory":  "/dev/shm/s",
		"PMIX_MCA_ptl_base_if_include":          "lo",
		"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
		"PRTE_MCA_hwloc_default_binding_policy": "none",
		"PRTE_MCA_prte_tmpdir_base":             "/dev/shm/s",
	} {
		if got := get(name); got != want {
			t.Errorf("Open MPI: %s=%q, want %q", name, got, want)
		}
	}
	disk := world.Lookup(mpirunEnv(nil, 1000, mpilib.OpenMPI, "/tmp/s"))
	if got := disk("OMPI_MCA_btl_vader_backing_directory"); got != "" {
		t.Errorf("Open MPI's shared memory is on disk, in %q", got)
	}
}

// TestFreePort checks that no outgoing connection can occupy the port.
func TestFreePort(t *testing.T) {
	for range 100 {
		if port, err := freePort(); err != nil || port < 20000 || port >= 30000 {
			t.Fatalf("port %d, %v", port, err)
		}
	}
}

// TestTasksOfBatchScript checks that ranks know how many trainers srun starts on their nodes.
func TestTasksOfBatchScript(t *testing.T) {
	job := slurm.Job{JobID: "7", Nodes: 3, TasksPerNode: "2,4(x2)"}
	for _, c := range []struct {
		job  slurm.Job
		f    form
		want int
	}{{job, formSlurm, 4}, {job, formTask, 1}, {slurm.Job{JobID: "7", Nodes: 1}, formSlurm, 1}} {
		o := &Options{Command: []string{"true"}}
		o.Register(pflag.NewFlagSet("", pflag.ContinueOnError))
		o.cache.Data = []string{"/d"}
		if err := o.check(c.job, c.f, world.Place{Tasks: 1}); err != nil ||
			o.cache.Trainers.PerRank != c.want {
			t.Errorf("%+v: %d trainers, %v", c, o.cache.Trainers.PerRank, err)
		}
	}
}

// TestRanksOfTasks checks that run, as a task of mpirun, refuses another number of ranks.
func TestRanksOfTasks(t *testing.T) {
	for name, value := range map[string]string{"SIZE": "4", "RANK": "0", "LOCAL_SIZE": "4"} {
		t.Setenv("OMPI_COMM_WORLD_"+name, value)
	}
	o := testOptions()
	o.ranks, o.library.Path = 3, "/lib/libmpi.so"
	err := o.Run(t.Context(), func(string) bool { return true })
	if err == nil || exit.Code(err) != exit.Misuse ||
		!strings.Contains(err.Error(), "--ranks: Open MPI's mpirun started 4 tasks") {
		t.Errorf("three ranks of four tasks: %v", err)
	}
}

// TestMemoryLimitsReachRanks checks that ranks that mpirun starts learn the limits that Slurm gave
// the job.
func TestMemoryLimitsReachRanks(t *testing.T) {
	env := mpirunEnv([]string{"SLURM_JOB_ID=1", "SLURM_MEM_PER_NODE=5", "SLURM_NTASKS=7"}, 1000,
		mpilib.MPICH, "/dev/shm/s")
	if want := []string{"SLURM_MEM_PER_NODE=5"}; !slices.Equal(env, want) {
		t.Errorf("mpirun's environment is %q, want %q", env, want)
	}
}
