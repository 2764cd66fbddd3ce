package simulator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rankpool/benchmarks/clusters"
)

func TestShippedClustersLoad(t *testing.T) {
	names := ClusterNames()
	if got := strings.Join(names,
		" "); got != "lab lustre-1024 mlperf-cosmoflow mlperf-resnet50 mlperf-unet3d nopfs-sim" {
		t.Errorf("clusters are %q", got)
	}
	for _, name := range names {
		c, err := LoadCluster(name)
		if err != nil {
			t.Fatal(err)
		}
		cached, uncached := c.Step(Nodes{4, 1, c.Trainer.BatchSize})
		if c.About == "" || cached < c.Trainer.Step.Seconds() || cached > uncached {
			t.Errorf("%s: %q: steps of %v s from memory and %v s from storage", name, c.About,
				cached, uncached)
		}
	}
}

// Every value of a shipped file has its source in the comment above it; "about" is for people.
func TestShippedClustersNameTheirSources(t *testing.T) {
	for _, name := range ClusterNames() {
		text, err := clusters.Files.ReadFile(name + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		before := ""
		for i, line := range strings.Split(string(text), "\n") {
			key, _, isValue := strings.Cut(line, " = ")
			if isValue && !strings.HasPrefix(line, "#") && key != "about" &&
				!strings.HasPrefix(before, "#") &&
				!strings.Contains(before, " = ") {
				t.Errorf("%s.toml:%d: %s has no source", name, i+1, key)
			}
			before = line
		}
	}
}

// MLPerf Storage v1.0, workloads resnet50_h100, unet3d_h100 and cosmoflow_h100.
func TestMLPerfStorageAccelerators(t *testing.T) {
	for _, w := range []struct {
		name        string
		batch       int
		step        time.Duration
		sampleBytes int64
	}{
		{"mlperf-resnet50", 400, 224 * time.Millisecond, 114_660},
		{"mlperf-unet3d", 7, 323 * time.Millisecond, 146_600_628},
		{"mlperf-cosmoflow", 1, 3500 * time.Microsecond, 2_828_486},
	} {
		c, err := LoadCluster(w.name)
		if err != nil {
			t.Fatal(err)
		}
		if c.Trainer.BatchSize != w.batch || c.Trainer.Step != w.step ||
			c.SampleBytes != w.sampleBytes {
			t.Errorf("%s: %+v, %d B", w.name, c.Trainer, c.SampleBytes)
		}
	}
}

const wholeFile = `sample_bytes = 1000
[trainer]
batch_size = 10
step = "1ms"
[loader]
workers = 2
prefetch_factor = 2
[storage]
curve = [[1, 1_000_000], [2, 1_500_000]]
`

func TestClusterFileErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"workers = 2", "wrokers = 2", "line 6: unknown key loader.wrokers"},
		{"[loader]", "[loaders]", "line 5: unknown key loaders"},
		{"workers = 2", "", "loader.workers is missing"},
		{"curve", "targets = 3 #", "storage.curve is missing"},
		{"workers = 2", "workers = 0", "line 6: loader.workers is 0, which is not in [1, 1024]"},
		{"workers = 2", "workers = \"two\"", "line 6 (last key \"loader.workers\")"},
		{"workers = 2", "workers = ", "line 6 (last key \"loader.workers\")"},
		{`"1ms"`, `"1h1m"`, "line 4: trainer.step is 1h1m0s, which is not in [1ns, 1h0m0s]"},
		{`"1ms"`, `"1 parsec"`, "line 4 (last key \"trainer.step\")"},
		{"[2, 1_500_000]", "[1, 1_500_000]", "line 9: storage.curve is 1, which is not in [2, 100000]"},
		{"1_500_000", "1.5", "line 9 (last key \"storage.curve\")"},
		{"1_500_000", "15", "line 9: storage.curve is 15, which is not in [1000000, 10000000000000]"},
		{"curve", "read_latency = \"-1ms\"\ncurve", "line 9: storage.read_latency is -1ms"},
	} {
		path := filepath.Join(t.TempDir(), "machine.toml")
		if err := os.WriteFile(path, []byte(strings.Replace(wholeFile, c.old, c.new, 1)),
			0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadCluster(path)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "simulator: "+path) {
			t.Errorf("%s: got %v, want %q", c.new, err, c.want)
		}
	}
}

func TestUnknownClusterListsTheKnownOnes(t *testing.T) {
	_, err := LoadCluster("laboratory")
	if err == nil || !strings.Contains(err.Error(), `"laboratory"`) ||
		!strings.Contains(err.Error(), "lab, lustre-1024, mlperf-cosmoflow") {
		t.Error(err)
	}
	if _, err := LoadCluster(filepath.Join(t.TempDir(), "lab.toml")); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

func FuzzParseCluster(f *testing.F) {
	f.Add(wholeFile)
	f.Add("sample_bytes = 1\n[trainer]\nstep = 3")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCluster(text)
		if err != nil {
			return
		}
		if cached, uncached := c.Step(Nodes{2, 1, 3}); cached <= 0 || cached > uncached {
			t.Errorf("steps of %v s from memory and %v s from storage", cached, uncached)
		}
	})
}

func TestBandwidthCurve(t *testing.T) {
	s := Storage{Curve: [][2]int64{{2, 200}, {4, 300}, {8, 260}}}
	for readers, want := range []int64{1: 100, 2: 200, 3: 250, 4: 300, 6: 280, 8: 260, 9: 260} {
		if got := s.bandwidth(readers); want != 0 && got != want {
			t.Errorf("%d readers get %d, want %d", readers, got, want)
		}
	}
	s.Targets, s.TargetBytesPerSecond = 3, 80
	for readers, want := range []int64{1: 80, 2: 160, 3: 240, 4: 240, 8: 240} {
		if got := s.bandwidth(readers); want != 0 && got != want {
			t.Errorf("%d readers of 3 targets get %d, want %d", readers, got, want)
		}
	}
	if got := s.readerBandwidth(); got != 80 {
		t.Errorf("one reader gets at most %d, want a target's 80", got)
	}
	if got := (&Storage{Curve: [][2]int64{{1, 330}, {4, 1541}}}).readerBandwidth(); got != 386 {
		t.Errorf("one reader gets at most %d, want the best share, 386", got)
	}
	if got := (&Storage{}).bandwidth(7); got != 0 {
		t.Errorf("bandwidth without a limit is %d, want 0", got)
	}
}

func TestBoundIsTheLargerOfComputingAndDistinctBytes(t *testing.T) {
	c := &Cluster{
		Trainer: Trainer{BatchSize: 4, Step: time.Second, Reduce: time.Second},
		Loader:  Loader{Workers: 2},
		Storage: Storage{Curve: [][2]int64{{1, 100}, {2, 150}, {4, 120}}},
	}
	if got := c.Bound(Nodes{2, 1, 8}, 10, 1000); got != 30 { // 10 batches of 8/4 + 1 seconds
		t.Errorf("computing: %v s, want 30", got)
	}
	// 2 of the 4 readers get 150 B/s, more than all
	if got := c.Bound(Nodes{2, 1, 8}, 10, 15_000); got != 100 {
		t.Errorf("storage: %v s, want 100", got)
	}
}

func TestStep(t *testing.T) {
	// 20 ranks read 20 samples of 1 kB each, at 1 MB/s together; 20 samples take 200 ms
	cached, uncached := byHand().Step(Nodes{20, 1, 20})
	if cached != 0.2 || uncached != 0.4 {
		t.Errorf("steps of %v s from memory and %v s from storage, want 0.2 and 0.4", cached,
			uncached)
	}
}

func TestPlanSeconds(t *testing.T) {
	c, err := LoadCluster("lab")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.PlanSeconds(14_200_000); got != 1.42 {
		t.Errorf("14.2 M draws are planned in %v s, want the 1.42 s that were measured", got)
	}
}

func TestServiceTime(t *testing.T) {
	for _, c := range [][3]int64{
		{0, 7, 0},
		{7, 0, 0},
		{1, 1_000_000_000, 1},
		{1, 3, 333_333_334},
		{1 << 40, 1 << 40, 1e9},
	} {
		if got := service(c[0], c[1]); got != c[2] {
			t.Errorf("%d at %d a second take %d ns, want %d", c[0], c[1], got, c[2])
		}
	}
	for _, perSecond := range []int64{1, 1000} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("2^62 at %d a second has a time", perSecond)
				}
			}()
			service(1<<62, perSecond)
		}()
	}
}
