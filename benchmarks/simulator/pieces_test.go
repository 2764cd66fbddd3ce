package simulator

import (
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/systems"
)

func windowConfig(t *testing.T, system string, w Window) Config {
	t.Helper()
	s, err := systems.Find(system)
	if err != nil {
		t.Fatal(err)
	}
	losses := slices.Repeat([][]float32{make([]float32, 4000)}, 7)
	return Config{
		Trace: &Trace{Losses: losses}, System: s, Sampler: "uniform", Capacity: 0.2, Ranks: 1,
		BatchSize: 16, SkipEpochs: 3, Window: w,
	}
}

// TestWindows compares how often systems read the data set in an epoch: about what "Scientific
// data" in docs/data.md says. On 4 ranks there are fewer neighbours in a block.
func TestWindows(t *testing.T) {
	for _, c := range []struct {
		w         Window
		most, lru float64
	}{
		{Window{3, 1}, 1.56, 2.56}, {Window{8, 1}, 3.9, 6.51}, {Window{1, 4}, 2.05, 3.37},
	} {
		read := map[string]float64{}
		for _, system := range []string{"rankpool", "lru", "min"} {
			cfg := windowConfig(t, system, c.w)
			one, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Ranks = 4
			four, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			read[system] = one.DataSetsRead
			if more := four.DataSetsRead / one.DataSetsRead; more < 0.95 || more > 1.06 {
				t.Errorf("%v: %s reads %.2f times as much on 4 ranks", c.w, system, more)
			}
		}
		if read["rankpool"] > c.most || read["rankpool"] < read["min"]-1e-9 ||
			read["lru"] < 0.97*c.lru || read["lru"] > 1.03*c.lru {
			t.Errorf("%v: %v data sets are read, at most %v and about %v", c.w, read, c.most, c.lru)
		}
	}
}

func TestWindowsAreRefused(t *testing.T) {
	for _, c := range []struct{ system, sampler, want string }{
		{"shade", "uniform", "chooses by sample"},
		{"lru", "weighted", "chooses by sample"},
		{"spidercache", "", "chooses by sample"},
	} {
		cfg := windowConfig(t, c.system, Window{3, 1})
		cfg.Sampler = c.sampler
		if _, err := Run(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q: %v", c.system, c.sampler, err)
		}
	}
	cfg := windowConfig(t, "lru", Window{3, 0})
	if _, err := Run(cfg); err == nil || !strings.Contains(err.Error(), "at least 1") {
		t.Errorf("no rows in a piece: %v", err)
	}
}
