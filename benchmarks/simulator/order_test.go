package simulator

import (
	"strings"
	"testing"

	"rankpool/scheduler/systems"
)

// TestPoliciesPassInTheSameOrder checks that policies that do not look ahead keep on ranks what
// they keep as pools, with the same draws: a sample is looked up with the score of its last
// training. Ranks are a window ahead of training, so a few scores are older.
func TestPoliciesPassInTheSameOrder(t *testing.T) {
	for _, c := range []struct {
		policy string
		within float64 // of the draws
	}{{"app", 0.005}, {"pq", 0.005}, {"lru", 0}, {"lfu", 0}} {
		cfg := Config{
			Trace: &Trace{Losses: recorded(t, 6)}, System: mustFind(t, "rankpool"),
			Policy: c.policy, Sampler: "pads", Scorer: "logrank", Capacity: 0.2, Ranks: 1,
			BatchSize: 64, SkipEpochs: 3,
		}
		live := mustRun(t, cfg).Hits
		cfg.System = mustFind(t, "lru")
		pool := mustRun(t, cfg)
		apart := float64(live-pool.Hits) / float64(pool.Draws)
		t.Logf("%s: %d hits in ranks, %d in a pool, of %d draws", c.policy, live, pool.Hits,
			pool.Draws)
		if apart < -c.within || apart > c.within {
			t.Errorf("%s: %d hits in ranks, %d in a pool, of %d draws", c.policy, live, pool.Hits,
				pool.Draws)
		}
	}
}

// TestICACHEHIsTheSameInRanks checks that ranks draw and keep as icache-h does in a pool: by
// selective, every sample in epoch 0, and with an H-list of all samples that is pulled when an
// epoch begins. Scores on ranks are a little older: those before the cut, and before a list is
// pulled.
func TestICACHEHIsTheSameInRanks(t *testing.T) {
	for _, policy := range []string{"icache-h", "lfu"} {
		cfg := Config{
			Trace: &Trace{Losses: recorded(t, 6)}, System: mustFind(t, "rankpool"), Policy: policy,
			Sampler: "selective", Capacity: 0.2, Ranks: 1,
			BatchSize: 64, SkipEpochs: 3,
		}
		ranks := mustRun(t, cfg)
		if n := len(ranks.Epochs[0].Batches); n != 8000/64 {
			t.Errorf("%s: epoch 0 has %d batches of 8000 samples", policy, n)
		}
		cfg.System, cfg.Policy, cfg.Sampler = mustFind(t,
			map[string]string{"icache-h": "icache-h", "lfu": "ilfu"}[policy]), "", ""
		pool := mustRun(t, cfg)
		live, draws := ranks.Hits, ranks.Draws
		t.Logf("%s: %d hits of %d draws in ranks, %d of %d in a pool", policy, live, draws,
			pool.Hits, pool.Draws)
		if apart := float64(live)/float64(draws) - float64(pool.Hits)/float64(
			pool.Draws); apart < -0.01 || apart > 0.01 {
			t.Errorf("%s: %d hits of %d draws in ranks, %d of %d in a pool", policy, live, draws,
				pool.Hits, pool.Draws)
		}
	}
}

// TestDropLast checks that with DropLast all epochs are whole global batches, those that are drawn
// without it, for a sampler, for a system that draws itself and for one that resamples.
func TestDropLast(t *testing.T) {
	trace := loadShipped(t)
	for _, name := range []string{"lru", "shade", "icache"} {
		system, err := systems.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{
			Trace: trace, System: system, Capacity: 0.2, Ranks: 2, BatchSize: 35,
			Epochs: 3, IDsDigest: true,
		}
		all, err := Run(cfg)
		cfg.DropLast = true
		whole, wrong := Run(cfg)
		if err != nil || wrong != nil {
			t.Fatal(err, wrong)
		}
		if whole.Draws%70 != 0 || whole.Draws >= all.Draws || whole.IDsDigest == all.IDsDigest {
			t.Errorf("%s: %d draws of %d", name, whole.Draws, all.Draws)
		}
		cfg.BatchSize = trace.Samples()
		if _, err := Run(cfg); err == nil || !strings.Contains(err.Error(), "drop_last leaves none") {
			t.Errorf("%s: no batch is full, and the error is %v", name, err)
		}
	}
}
