package simulate

import (
	"testing"

	"rankpool/benchmarks/simulator"
	"rankpool/scheduler/systems"
)

// TestEverySystemHasAnEntry checks that --list describes each system and each option.
func TestEverySystemHasAnEntry(t *testing.T) {
	for _, s := range systems.All() {
		l := list(&s)
		if l.System == "" || l.About == "" || l.Source == "" || l.Sampler == "" {
			t.Errorf("--list has too little about %+v", l)
		}
		for _, o := range l.Options {
			if o.Name == "" || o.About == "" || o.Source == "" {
				t.Errorf("--list has too little about %s.%s", l.System, o.Name)
			}
		}
	}
}

// TestOfMin compares with min's hits only where the draws are the same.
func TestOfMin(t *testing.T) {
	result := func(system, sampler string, capacity float64, hits int64) *simulator.Result {
		return &simulator.Result{
			System: system, Sampler: sampler, Capacity: capacity, Draws: 100,
			Hits: hits,
		}
	}
	all := []*simulator.Result{
		result("lru", "torch", 0.1, 20), result("lru", "torch", 0.2, 30),
		result("shade", "pads", 0.1, 60),
		result("min", "torch", 0.1, 40),
	}
	for _, c := range []struct {
		sampler string
		want    [3]string
	}{
		{"", [3]string{"50.0 %", "-", "-"}},
		{"pads", [3]string{"50.0 %", "-", "150.0 %"}},
	} {
		s := &study{base: simulator.Config{Sampler: c.sampler}}
		for i, want := range c.want {
			if got := s.ofMin(all[i], all); got != want {
				t.Errorf("--sampler %q: %s at %v has %s of min, want %s", c.sampler, all[i].System,
					all[i].Capacity, got, want)
			}
		}
	}
}

// TestAreas checks that areas sums the counted epochs by part, and that the shares of each part add
// up to 1.
func TestAreas(t *testing.T) {
	s := &study{base: simulator.Config{SkipEpochs: 1}}
	epoch := simulator.EpochResult{Batches: []simulator.BatchResult{
		{Local: 4},
		{Local: 1, Remote: 1, Substituted: 1, Storage: 1},
	}}
	r := &simulator.Result{
		System: "x", Capacity: 0.1, Draws: 8, Hits: 6,
		Epochs: []simulator.EpochResult{
			{Batches: []simulator.BatchResult{{Storage: 4}}},
			epoch,
			epoch,
		},
	}
	areas := s.areas([]*simulator.Result{r}, 0.1)
	if len(areas) != 1 || len(areas[0].Parts) != 2 || areas[0].Parts[0].Local != 1 ||
		areas[0].Parts[1].Local != 0.25 || areas[0].Parts[1].Storage != 0.25 {
		t.Errorf("%+v", areas)
	}
	if got := s.areas([]*simulator.Result{r}, 0.2); len(got) != 0 {
		t.Errorf("another capacity has %+v", got)
	}
}

// TestPartsOf checks which options have an effect when --policy or --sampler replaces a part of a
// system.
func TestPartsOf(t *testing.T) {
	for _, c := range []struct {
		system, policy, sampler, name, option string
		want                                  bool
	}{
		{"icache-h", "", "", "icache-h", "fraction", true},
		{"icache-h", "", "", "icache-h", "h_share", true},
		{"icache-h", "lru", "", "icache-h", "fraction", true}, // the sampler stays
		{"icache-h", "lru", "", "icache-h", "h_share", false},
		{"icache-h", "", "torch", "icache-h", "fraction", false},
		{"icache-h", "", "subset", "icache-h", "fraction", true},
		{"icache-h", "", "subset", "icache-h", "beta", false},
		{"lru", "icache-h", "", "icache-h", "h_share", true},
		{"rankpool", "", "", "rankpool", "floor", true},
		{"rankpool", "", "torch", "rankpool", "floor", false},
		{"rankpool", "", "weighted", "rankpool", "floor", true},
		{"min", "icache-h", "", "icache-h", "h_share", false}, // a bound keeps its policy
	} {
		system, err := systems.Find(c.system)
		if err != nil {
			t.Fatal(err)
		}
		if got := partsOf(system, c.policy, c.sampler).takes(c.name, c.option); got != c.want {
			t.Errorf("%+v: has an effect: %v", c, got)
		}
	}
}
