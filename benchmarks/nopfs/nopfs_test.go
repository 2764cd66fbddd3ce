package nopfs

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/systems"
)

// small returns a training that can be computed by hand: 2 workers, 4 samples of 1 MB, 2 epochs, so
// a worker trains on 4 samples of 1 s each. A thread takes 2 s to fetch a sample from the PFS, 0.5
// s from RAM, its own or another worker's, and 0.5 s to preprocess it.
func small(ramMB float64) *Scenario {
	return &Scenario{
		Name: "small", Workers: 2, Samples: 4, MeanMB: 1, BatchSize: 1, Epochs: 2,
		CapacityMB: []float64{100, ramMB},
		Machine: systems.NoPFSModel{
			Compute: 1, Preprocess: 2, Network: 2,
			PFS: []systems.NoPFSRate{{Clients: 2, MBps: 1}},
			Tiers: []systems.NoPFSTier{
				{ReadMBps: 1000, WriteMBps: 1000, Threads: 1}, {ReadMBps: 2, Threads: 1},
			},
		},
	}
}

func TestPoliciesByHand(t *testing.T) {
	for _, c := range []struct {
		policy                  string
		ramMB                   float64
		seconds, preload, stall float64
		pfsMB                   float64
		distinct                int
	}{
		// 4 steps.
		{"perfect", 2, 4, 0, 0, 0, 4},
		// 4 times 2 + 0.5 + 1.
		{"naive", 2, 14, 0, 10, 8, 4},
		// Samples are there at 2.5, 5, 7.5, 10; the last is trained on until 11.
		{"staging-buffer", 2, 11, 0, 7, 8, 4},
		// 2 · 2.5 of preload, 1 s until the first sample is read from RAM, then compute-bound.
		{"deepio-ordered", 2, 10, 5, 1, 4, 4},
		{"deepio-opportunistic", 2, 10, 5, 1, 4, 4},
		{"parallel-staging", 2, 10, 5, 1, 4, 4},
		{"lbann-preload", 2, 10, 5, 1, 4, 4},
		{"locality-aware", 2, 10, 5, 1, 4, 4},
		// Without memory, every sample is read when it is needed.
		{"deepio-ordered", 0, 14, 0, 10, 8, 4},
		// One sample per worker: half of the data is never trained on.
		{"deepio-opportunistic", 1, 7.5, 2.5, 1, 2, 2},
		{"parallel-staging", 1, 7.5, 2.5, 1, 2, 2},
		// At 2.5 and 5 from the PFS; the second epoch is read from RAM by 6 and 7, in time.
		{"lbann-dynamic", 2, 8, 0, 4, 4, 4},
		// The first at 2.5, when RAM has prefetched the second, which is staged at 3.5; the other
		// two are in the other worker's RAM. Each worker reads two from the PFS.
		{"nopfs", 4, 6.5, 0, 2.5, 4, 4},
	} {
		r, err := Run(small(c.ramMB), c.policy)
		if err != nil {
			t.Fatal(err)
		}
		if r.Refused != "" || r.Seconds != c.seconds || r.Preload != c.preload ||
			r.Stall != c.stall || r.PFSMB != c.pfsMB || r.Distinct != c.distinct {
			t.Errorf("%s with %v MB: %+v, want %+v", c.policy, c.ramMB, *r, c)
		}
	}
}

// TestStagingBufferIsFull has no room for a second sample, so workers do not read ahead.
func TestStagingBufferIsFull(t *testing.T) {
	s := small(0)
	s.CapacityMB[0] = 1
	if r, err := Run(s, "staging-buffer"); err != nil || r.Seconds != 14 {
		t.Errorf("%+v, %v; want 14 s, as of naive", r, err)
	}
}

func TestLBANNNeedsMemory(t *testing.T) {
	for _, policy := range []string{"lbann-dynamic", "lbann-preload"} {
		r, err := Run(small(1.5), policy)
		want := "the data are 4 MB, the memory of all workers is 3 MB"
		if err != nil || r.Refused != want || r.Seconds != 0 {
			t.Errorf("%s: %+v, %v", policy, r, err)
		}
	}
}

// consumed returns t(f) for each f, the time when training on the f-th sample begins: once it is in
// the staging buffer, at avail(f) = (sum of the reads up to f)/p_0, and the one before it is
// computed. reads are in order of access.
func consumed(m *systems.NoPFSModel, reads, sizesMB []float64) []float64 {
	t, sum := make([]float64, len(reads)), 0.0
	for f, took := range reads {
		sum += took
		t[f] = sum / m.Tiers[0].Threads
		if f > 0 {
			t[f] = max(t[f], t[f-1]+sizesMB[f-1]/m.Compute)
		}
	}
	return t
}

// TestConsumed checks t(f) by hand: 1; max(3, 1+1) waits; max(3.5, 3+2) computes; max(10, 5+0.25)
// waits.
func TestConsumed(t *testing.T) {
	m := systems.NoPFSModel{Compute: 64, Tiers: []systems.NoPFSTier{{Threads: 2}}}
	got := consumed(&m, []float64{2, 4, 1, 13}, []float64{64, 128, 16, 320})
	if !slices.Equal(got, []float64{1, 3, 5, 10}) {
		t.Errorf("consumed at %v, want 1 3 5 10", got)
	}
}

// TestStagingBufferByTheModel compares one worker with the equations of the paper's section 4.
func TestStagingBufferByTheModel(t *testing.T) {
	s, err := Load("thesis-1")
	if err != nil {
		t.Fatal(err)
	}
	s.Workers, s.Samples, s.Epochs, s.DeviationMB = 1, 1000, 1, 0
	var reads, sizes []float64
	for range s.Samples {
		mb := float64(float32(s.MeanMB))
		sizes = append(sizes, mb)
		reads = append(reads, s.Machine.Read(mb, 1, systems.NoPFSNowhere, systems.NoPFSNowhere))
	}
	t0 := consumed(&s.Machine, reads, sizes)
	want := t0[len(t0)-1] + sizes[0]/s.Machine.Compute
	r, err := Run(s, "staging-buffer")
	if err != nil || math.Abs(r.Seconds-want) > 1e-9*want {
		t.Errorf("%+v, %v; the model says %v s", r, err, want)
	}
}

// TestThesisTables compares with tables 5.1 and 5.2 where γ = N workers read the PFS, or none.
func TestThesisTables(t *testing.T) {
	for _, c := range []struct {
		scenario, policy string
		want             float64
	}{
		{"thesis-1", "perfect", 7.30},
		{"thesis-1", "lbann-dynamic", 7.71},
		{"thesis-1", "lbann-preload", 8.41},
		{"thesis-1", "deepio-ordered", 8.41},
		{"thesis-1", "deepio-opportunistic", 8.40},
		{"thesis-1", "locality-aware", 8.41},
		{"thesis-2", "perfect", 3825.66},
		{"thesis-2", "lbann-dynamic", 4051.12},
		{"thesis-2", "lbann-preload", 4433.27},
		{"thesis-2", "nopfs", 3836.12},
	} {
		s, err := Load(c.scenario)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(s, c.policy)
		if err != nil || math.Abs(r.Seconds/c.want-1) > 0.01 {
			t.Errorf("%s, %s: %+v, %v; want %v s within 1 %%", c.scenario, c.policy, r, err, c.want)
		}
	}
}

// TestTierIsFull closes a tier at the first sample that does not fit.
func TestTierIsFull(t *testing.T) {
	free := 3.0
	for i, c := range []struct {
		mb   float64
		want bool
	}{{2, true}, {1, true}, {1, false}, {0, false}} {
		if got := take(&free, c.mb); got != c.want {
			t.Errorf("sample %d: %v, want %v", i, got, c.want)
		}
	}
}

// TestAssign checks that RAM holds what is used most, and SSD what comes next; in a tie, what is
// used first.
func TestAssign(t *testing.T) {
	s := small(1)
	s.CapacityMB = []float64{100, 1, 2}
	tr := &training{Scenario: s, sizes: []float32{1, 1, 1, 1}}
	got := tr.assign([]uint16{3, 1, 2, 1}, []draw.SampleID{3, 1, 0, 2})
	if want := []uint8{1, 0, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("tiers %v, want %v", got, want)
	}
}

// TestLocalityAwareStaysLocal deals batches of 200 among two workers with half of the data each.
func TestLocalityAwareStaysLocal(t *testing.T) {
	s := small(2000)
	s.Samples, s.BatchSize = 4000, 100
	for policy, want := range map[string]float64{"locality-aware": 0.9, "lbann-preload": 0.4} {
		r, err := Run(s, policy)
		if err != nil {
			t.Fatal(err)
		}
		share := r.LocalSeconds / (r.LocalSeconds + r.RemoteSeconds)
		if share < want || share > want+0.2 {
			t.Errorf("%s: %v of the fetches are local, want %v or somewhat more", policy, share,
				want)
		}
	}
}

func TestLoad(t *testing.T) {
	for _, name := range Names() {
		s, err := Load(name)
		if err != nil || s.check() != nil {
			t.Errorf("%s: %v, %v", name, err, s.check())
		}
	}
	file := filepath.Join(t.TempDir(), "x.toml")
	for _, c := range []struct{ text, want string }{
		{"", "must have one [scenario.NAME], not 0"},
		{"[machine.m]\nworker = 1", "unknown key machine.m.worker"},
		{"[scenario.s]\nmachine = 'm'", "scenario s: machine m is not defined"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := Load("minst"); err == nil || !strings.Contains(err.Error(), `mean "mnist"?`) {
		t.Errorf("minst: %v", err)
	}
}

func TestRunChecks(t *testing.T) {
	if _, err := Run(small(1), "nopf"); err == nil ||
		!strings.Contains(err.Error(), `did you mean "nopfs"?`) {
		t.Errorf("nopf: %v", err)
	}
	for want, change := range map[string]func(*Scenario){
		"samples must be from 2 to":              func(s *Scenario) { s.Samples = 1 },
		"epochs must be from 1 to":               func(s *Scenario) { s.Epochs = 0 },
		"compute must be from":                   func(s *Scenario) { s.Machine.Compute = math.NaN() },
		"capacity_mb of tier 1 must be from 0":   func(s *Scenario) { s.CapacityMB[1] = -1 },
		"capacity_mb of tier 0 must be from":     func(s *Scenario) { s.CapacityMB[0] = 0 },
		"number of tiers must be from 1":         func(s *Scenario) { s.Machine.Tiers = nil },
		"number of points of pfs must be from 1": func(s *Scenario) { s.Machine.PFS = nil },
	} {
		s := small(1)
		change(s)
		if _, err := Run(s, "naive"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
