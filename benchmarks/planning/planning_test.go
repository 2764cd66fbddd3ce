package planning

import (
	"runtime"
	"testing"
)

func TestMeasure(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	r, err := Measure(Config{Sampler: "torch", Samples: 10_000, Ranks: 4, BatchSize: 25, Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if r.Draws != 10_000 || r.Batches != 100 || len(r.Seconds) != 2 || r.Seconds[0] <= 0 ||
		r.PeakBytes < 0 {
		t.Errorf("%+v", r)
	}
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("GOMAXPROCS is %d, was %d", now, before)
	}
}

func TestMeasureErrors(t *testing.T) {
	for _, cfg := range []Config{
		{Sampler: "nothing", Samples: 10, Ranks: 1, BatchSize: 1},
		{Sampler: "torch", Samples: 0, Ranks: 1, BatchSize: 1},
		{Sampler: "torch", Samples: 10, Ranks: 0, BatchSize: 1},
		{Sampler: "torch", Samples: 10, Ranks: 1, BatchSize: 0},
	} {
		if r, err := Measure(cfg); err == nil {
			t.Errorf("%+v was measured: %+v", cfg, r)
		}
	}
}
