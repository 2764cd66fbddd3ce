package simulator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
	"rankpool/scheduler/systems"
)

// unscored is a trace for samplers that use no losses.
func unscored(samples, epochs int) *Trace {
	t := &Trace{Losses: make([][]float32, epochs)}
	for e := range t.Losses {
		t.Losses[e] = make([]float32, samples)
	}
	return t
}

// lanesOf returns n trainings, the last `slow` of them at half the pace of the others.
func lanesOf(n, slow int) []Lane {
	var lanes []Lane
	for i := range n {
		step := time.Millisecond
		if i >= n-slow {
			step *= 2
		}
		lanes = append(lanes, Lane{Name: fmt.Sprint(i), Seed: int64(i), Step: step})
	}
	return lanes
}

func runLanes(t *testing.T, cfg Config, lanes []Lane) *LanesResult {
	t.Helper()
	cfg.System, cfg.BatchSize = mustFind(t, "rankpool"), cmp.Or(cfg.BatchSize, 16)
	r, err := RunLanes(cfg, lanes)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Lanes {
		if l.Fallbacks > 0 {
			t.Errorf("job %s: %d draws were not served as planned", l.Name, l.Fallbacks)
		}
	}
	return r
}

// TestSevenTrainings checks what seven trainings with a fifth of the data in memory read together,
// in data sets per epoch, including reads to measure their benefit, against what MIN reads, which
// knows how they interleave.
func TestSevenTrainings(t *testing.T) {
	const samples, epochs = 4000, 8
	for _, c := range []struct {
		sampler string
		slow    int
		most    float64
	}{{"chunks", 0, 0.95}, {"chunks", 3, 1.65}, {"torch", 0, 3.4}, {"torch", 3, 3.6}} {
		for _, ranks := range []int{1, 4} {
			r := runLanes(t, Config{
				Trace: unscored(samples, epochs), Sampler: c.sampler, Ranks: ranks, Capacity: 0.2,
			}, lanesOf(7, c.slow))
			got := float64(r.Reads+r.ProbeReads) / samples / epochs
			// each is measured in two epochs, with 4 ranks in none, which have too few batches
			most := int64(7 * 2 * samples / 20)
			if r.ProbeReads > most || (r.ProbeReads > 0) != (ranks == 1) {
				t.Errorf("%s, %d of 7 slow, %d ranks: %d samples are read to measure the benefit",
					c.sampler, c.slow, ranks, r.ProbeReads)
			}
			if got > c.most || float64(r.Reads) > 1.02*float64(r.MinReads) {
				t.Errorf("%s, %d of 7 slow, %d ranks: %.3f data sets an epoch, want at most %v; "+
					"MIN reads %.3f", c.sampler, c.slow, ranks, got, c.most,
					float64(r.MinReads)/samples/epochs)
			}
		}
	}
}

// TestSevenQuivers checks that seven trainings under Quiver miss together: their books work on the
// same chunks at the same time.
func TestSevenQuivers(t *testing.T) {
	const samples, epochs = 4000, 8
	for _, ranks := range []int{1, 4} {
		p, err := newLanes(Config{
			Trace: unscored(samples, epochs), System: mustFind(t, "rankpool"), Sampler: "torch",
			Ranks: ranks, Capacity: 0.2, BatchSize: 16,
		}, lanesOf(7, 0))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.lanes {
			l.planCfg.Shared = true
			l.planCfg.Sampler, err = systems.NewChooser(systems.ChooserConfig{
				System: mustFind(t, "quiver"), World: l.planCfg.World, Ranks: ranks, Epochs: epochs,
				Size: func(draw.SampleID) int64 { return 1 }, CapacityBytes: samples / 5,
				Sampler: draw.SamplerConfig{
					Samples: samples, Seed: l.Seed, BatchSize: 16, World: ranks,
				},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for l := p.next(); l != nil; l = p.next() {
			p.batch(l)
		}
		r := p.finish()
		if got := float64(r.Reads+r.ProbeReads) / samples / epochs; got > 0.95 {
			t.Errorf("%d ranks: %.3f data sets an epoch, want at most 0.95; MIN reads %.3f", ranks, got,
				float64(r.MinReads)/samples/epochs)
		}
	}
}

// TestLanesDrawAsAlone checks that other trainings do not change what one draws, even if they begin
// in the middle of it and end before it, and that two together read less than each alone.
func TestLanesDrawAsAlone(t *testing.T) {
	losses := recorded(t, 4)
	reversed := make([][]float32, len(losses))
	for e := range losses {
		reversed[e] = slices.Clone(losses[e])
		slices.Reverse(reversed[e])
	}
	lanes := []Lane{
		{Name: "a", Seed: 1, Step: 3},
		{Name: "b", Seed: 2, Step: 2, Start: 500, Losses: reversed},
		{Name: "c", Seed: 3, Step: 1, Start: 100},
	}
	for _, ranks := range []int{1, 3} {
		cfg := Config{
			Trace: &Trace{Losses: losses}, Sampler: "pads", Ranks: ranks, Capacity: 0.2,
		}
		all := runLanes(t, cfg, lanes)
		alone := int64(0)
		for i, l := range lanes {
			r := runLanes(t, cfg, []Lane{l})
			alone += r.Reads
			if !slices.Equal(r.IDs[0], all.IDs[i]) || len(r.IDs[0]) == 0 {
				t.Errorf("%d ranks: job %s draws other samples beside other jobs", ranks, l.Name)
			}
		}
		if all.Reads > alone || float64(all.Reads) > 1.1*float64(all.MinReads) {
			t.Errorf("%d ranks: together they read %d samples, each with a cache of its own %d, "+
				"MIN %d", ranks, all.Reads, alone, all.MinReads)
		}
	}
}

// TestLaneAlone checks that a single lane is like a job without lanes.
func TestLaneAlone(t *testing.T) {
	for _, sampler := range []string{"torch", "chunks", "pads"} {
		cfg := Config{
			Trace: &Trace{Losses: recorded(t, 3)}, System: mustFind(t, "rankpool"),
			Sampler: sampler, Ranks: 1, Capacity: 0.2, BatchSize: 16, Seed: 5,
		}
		want := ranksOf(t, cfg, func(stager.Deliver) {})
		got := runLanes(t, cfg, []Lane{{Name: "a", Seed: 5, Step: 1}})
		if reads := want.result.StorageBytes; got.Reads != reads ||
			!slices.Equal(got.IDs[0], want.ids()) {
			t.Errorf("%s: a lane alone reads %d samples, a job %d", sampler, got.Reads, reads)
		}
	}
}

// TestLaneThatStops checks that a training that stands still for a long time costs the other no
// memory: it reads about what it reads alone.
func TestLaneThatStops(t *testing.T) {
	const samples, epochs = 4000, 8
	cfg := Config{Trace: unscored(samples, epochs), Sampler: "torch", Ranks: 1, Capacity: 0.2}
	alone := runLanes(t, cfg, []Lane{{Name: "a", Seed: 1, Step: 1}})
	// b takes three steps while a trains
	lanes := []Lane{{Name: "a", Seed: 1, Step: 1}, {Name: "b", Seed: 2, Step: 1000}}
	p, err := newLanes(Config{
		Trace: cfg.Trace, System: mustFind(t, "rankpool"), Sampler: "torch", Ranks: 1,
		Capacity: 0.2, BatchSize: 16,
	}, lanes)
	if err != nil {
		t.Fatal(err)
	}
	before := int64(0)
	for l := p.next(); p.lanes[0].epoch < epochs; l = p.next() {
		reads := p.reads
		p.batch(l)
		if l.number == 1 {
			before += p.reads - reads
		}
	}
	if got := p.reads - before; float64(got) > 1.05*float64(alone.Reads) {
		t.Errorf("a training reads %d samples beside one that stands still, %d alone", got,
			alone.Reads)
	}
	if hits := p.lanes[0].result.Hits; float64(hits) < 0.9*float64(alone.Lanes[0].Hits) {
		t.Errorf("it has %d hits beside one that stands still, %d alone", hits, alone.Lanes[0].Hits)
	}
}

// TestDataSetsTradeMemory has trainings on two data sets, of which one waits for storage. It checks
// that that data set is kept whole once this is known, that the other one gets what is left, and
// that all draw what they draw alone. Without measuring, memory is divided by size.
func TestDataSetsTradeMemory(t *testing.T) {
	const small, large, epochs = 800, 1600, 7
	waits, idle := unscored(small, epochs).Losses, unscored(large, epochs).Losses
	lanes := []Lane{
		{Name: "waits", Seed: 1, Step: 1000, Uncached: 4000, Data: "a", Losses: waits},
		{Name: "waits-2", Seed: 2, Step: 1000, Uncached: 4000, Data: "a", Losses: waits},
		{Name: "idle", Seed: 3, Step: 1000, Uncached: 1000, Losses: idle},
	}
	for _, c := range []struct {
		ranks       int
		never       bool
		waits, idle float64 // what is kept
	}{{1, false, 1, 0.25}, {2, false, 1, 0.25}, {1, true, 0.5, 0.5}} {
		cfg := Config{
			Trace: &Trace{Losses: idle}, Sampler: "torch", Ranks: c.ranks, Capacity: 0.5,
			NoBenefit: c.never, BatchSize: 4 / c.ranks,
		}
		r := runLanes(t, cfg, lanes)
		for i, want := range []float64{c.waits, c.idle} {
			if d := r.Data[i]; math.Abs(d.Kept-want) > 0.02 {
				t.Errorf("%+v: of data %q %.3f is kept, want %.2f", c, d.Name, d.Kept, want)
			}
		}
		if fast := r.Lanes[0].Speedup > 3.5; fast == c.never || math.Abs(r.Lanes[2].Speedup-1) > 0.05 {
			t.Errorf("%+v: the trainings are %.2f and %.2f times as fast as without a cache", c,
				r.Lanes[0].Speedup, r.Lanes[2].Speedup)
		}
		if r.Reads < r.MinReads || r.Data[0].Reads+r.Data[1].Reads != r.Reads {
			t.Errorf("%+v: %d samples are read, %+v, MIN reads %d", c, r.Reads, r.Data, r.MinReads)
		}
		for i, l := range lanes {
			if alone := runLanes(t, cfg, []Lane{l}); !slices.Equal(alone.IDs[0], r.IDs[i]) {
				t.Errorf("%+v: job %s draws other samples beside other jobs", c, l.Name)
			}
		}
	}
}

func TestRunLanesErrors(t *testing.T) {
	cfg := Config{
		Trace: unscored(8, 2), System: mustFind(t, "rankpool"), Sampler: "torch", Ranks: 1,
		BatchSize: 2, Capacity: 1,
	}
	for name, lanes := range map[string][]Lane{
		"none":         {},
		"twice":        {{Name: "a", Step: 1}, {Name: "a", Step: 1}},
		"no step":      {{Name: "a"}},
		"before 0":     {{Name: "a", Step: 1, Start: -1}},
		"no epoch":     {{Name: "a", Step: 1, Epochs: -1}},
		"many epochs":  {{Name: "a", Step: 1, Epochs: 3}},
		"slower cache": {{Name: "a", Step: 2, Uncached: 1}},
		"unlike data": {
			{Name: "a", Step: 1, Data: "d", Losses: [][]float32{{1}, {1}}},
			{Name: "b", Step: 1, Data: "d", Losses: [][]float32{{1, 1}, {1, 1}}},
		},
		"too few losses":  {{Name: "a", Step: 1, Losses: make([][]float32, 1)}},
		"too few samples": {{Name: "a", Step: 1, Losses: [][]float32{{1}, {1}}}},
	} {
		if _, err := RunLanes(cfg, lanes); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	cfg.System = mustFind(t, "lru")
	if _, err := RunLanes(cfg, []Lane{{Name: "a", Step: 1}}); err == nil {
		t.Error("lru: no error")
	}
}
