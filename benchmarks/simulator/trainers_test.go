package simulator

import (
	"testing"
	"time"

	"rankpool/scheduler/systems"
)

// TestConsumersOfPublishedSystems checks that trainer j mod W, on rank (j mod W) / T, consumes
// place j of a global batch in every published system, whoever draws: their samplers are
// DistributedSampler's. Only rankpool and the bounds assign draws to the rank that has the sample.
func TestConsumersOfPublishedSystems(t *testing.T) {
	for _, s := range systems.All() {
		for _, sampler := range []string{"", "pads"} {
			cfg := Config{
				Trace: syntheticTrace(120, 2), System: &s, Sampler: sampler,
				Capacity: 0.3, Ranks: 3, TrainersPerRank: 2, BatchSize: 5, Jobs: 2,
			}
			_, p := pooledOf(t, cfg)
			strided := true
			pool := p.pool
			p.pool = batchSpy{pool, func(b *systems.Batch) {
				for j, rank := range b.Rank {
					strided = strided && int(rank) == j%6/2
				}
			}}
			if err := p.epoch(0); err != nil {
				t.Fatal(err)
			}
			if want := s.Name != "rankpool" && !s.Offline(); strided != want {
				t.Errorf("%s, sampler %q: consumers are DistributedSampler's: %v, want %v", s.Name,
					sampler, strided, want)
			}
		}
	}
}

// TestTrainersPerRank checks that the draws are those of as many trainers on a rank each, that the
// sums add up, and that a rank with two trainers holds more samples of its own than two with one:
// hits in its memory are local to both.
func TestTrainersPerRank(t *testing.T) {
	trace := &Trace{Losses: recorded(t, 3)}
	for _, system := range []string{"lru", "coordl", "shade", "rankpool"} {
		apart := Config{
			Trace: trace, System: mustFind(t, system), Capacity: 0.3, Ranks: 4,
			BatchSize: 32, SkipEpochs: 1, Seed: 2,
		}
		together := apart
		together.Ranks, together.TrainersPerRank = 2, 2
		a, b := mustRun(t, apart), mustRun(t, together)
		if a.Draws != b.Draws || system == "lru" && a.Hits != b.Hits {
			t.Errorf("%s: %d hits of %d draws on 4 ranks, %d of %d on 2 ranks of 2 trainers",
				system, a.Hits, a.Draws, b.Hits, b.Draws)
		}
		if b.HitsLocal <= a.HitsLocal || b.Draws != b.Hits+b.StorageReads ||
			b.Hits != b.HitsLocal+b.HitsRemote {
			t.Errorf("%s: %d of %d hits are local on 2 ranks, %d of %d on 4", system, b.HitsLocal,
				b.Hits, a.HitsLocal, a.Hits)
		}
	}
}

// TestTrainersPerRankTakeTime checks that two trainers of a rank read with the readers of both and
// share the rank's link.
func TestTrainersPerRankTakeTime(t *testing.T) {
	c := &Cluster{
		SampleBytes: 1000, Trainer: Trainer{BatchSize: 1},
		Loader:  Loader{Workers: 2, PrefetchFactor: 1},
		Storage: Storage{ReadLatency: time.Millisecond},
	}
	seconds := func(n Nodes, load Load) float64 {
		clock := NewClock(c, n, 1)
		clock.Batch([]Load{load})
		return clock.EndEpoch(true)
	}
	load := Load{StorageBytes: 8000, Reads: 8}
	if one, two := seconds(Nodes{1, 1, 8}, load), seconds(Nodes{1, 2, 4}, load); one != 0.004 ||
		two != 0.002 {
		t.Errorf("8 reads of 1 ms take %v s with 2 readers, and %v s with 2 trainers of 2", one,
			two)
	}
	c.Network.LinkBytesPerSecond = 1000
	if one, two := seconds(Nodes{1, 1, 8}, Load{RemoteBytes: 8000}),
		seconds(Nodes{1, 2, 4}, Load{RemoteBytes: 8000}); one != 8 || two != 8 {
		t.Errorf("8 kB over a link of 1 kB/s take %v s with a trainer, and %v s with two", one, two)
	}
	if step := func(trainers int) float64 { _, s := c.Step(Nodes{1, trainers, 8}); return s }; step(
		2) != step(1) {
		t.Errorf("a step takes %v s with a trainer and %v s with two, each with readers of its own",
			step(1), step(2))
	}
}
