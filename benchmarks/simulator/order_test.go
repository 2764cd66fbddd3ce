package simulator

import "testing"

// TestPoliciesPassInTheSameOrder has policies that do not look ahead keep in ranks what they keep as pools, with the same draws: a sample
// is looked for with the score of its last training. Ranks are a window ahead of training, so a few scores are older.
func TestPoliciesPassInTheSameOrder(t *testing.T) {
	for _, c := range []struct {
		policy string
		within float64 // of the draws
	}{{"app", 0.005}, {"pq", 0.005}, {"lru", 0}, {"lfu", 0}} {
		cfg := Config{
			Trace: &Trace{Losses: recorded(t, 6)}, System: mustFind(t, "rankpool"), Policy: c.policy, Sampler: "pads", Scorer: "logrank", Capacity: 0.2, Ranks: 1,
			BatchSize: 64, SkipEpochs: 3,
		}
		ranks, err := RunStagers(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.System = mustFind(t, "lru")
		pool := mustRun(t, cfg)
		live := int64(0)
		for _, hits := range ranks.Hits[cfg.SkipEpochs:] {
			live += hits
		}
		apart := float64(live-pool.Hits) / float64(pool.Draws)
		t.Logf("%s: %d hits in ranks, %d in a pool, of %d draws", c.policy, live, pool.Hits, pool.Draws)
		if apart < -c.within || apart > c.within {
			t.Errorf("%s: %d hits in ranks, %d in a pool, of %d draws", c.policy, live, pool.Hits, pool.Draws)
		}
	}
}
