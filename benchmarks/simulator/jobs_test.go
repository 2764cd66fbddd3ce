package simulator

import (
	"slices"
	"testing"
	"time"

	"rankpool/scheduler/systems"
)

// batchSpy looks at every batch after it was answered.
type batchSpy struct {
	systems.Pool
	seen func(b *systems.Batch)
}

func (p batchSpy) Batch(b *systems.Batch, answers []systems.Answer) {
	p.Pool.Batch(b, answers)
	p.seen(b)
}

// ioBound is a machine on which a sample of storage takes 1 ms and one of memory nothing.
func ioBound() *Cluster {
	return &Cluster{
		SampleBytes: 1000, Trainer: Trainer{BatchSize: 1, Step: time.Microsecond},
		Loader:  Loader{Workers: 1, PrefetchFactor: 1},
		Storage: Storage{ReadLatency: time.Millisecond},
	}
}

// ratios runs iCACHE with two jobs, and returns T_cacheless / T_cache of each, of every epoch after
// the first.
func ratios(t *testing.T, cfg Config) (of [2][]float64) {
	t.Helper()
	cfg.System, cfg.Jobs, cfg.Values = mustFind(t, "icache"), 2, systems.Values{"probe_batches": 5}
	s, p := pooledOf(t, cfg)
	took := p.count.took()
	p.pool = resampled{batchSpy{p.pool, func(b *systems.Batch) {
		if b.Epoch > 0 && b.Number == 10 {
			of[b.Job] = append(of[b.Job], took(b.Job, 0, 5)/took(b.Job, 5, 10))
		}
	}}, p.pool.(systems.Resampler)}
	for _, j := range p.jobs {
		j.feed.(*ownFeed).pool = p.pool
	}
	for epoch := range s.Epochs {
		if err := p.epoch(epoch); err != nil {
			t.Fatal(err)
		}
	}
	return of
}

// resampled is a pool that chooses its sampler.
type resampled struct {
	systems.Pool
	systems.Resampler
}

// TestICACHEMeasuresItsBenefit checks that T_cache is the time with what iCACHE really serves from
// memory, not with all samples there. On a machine where only reads of storage take time, the ratio
// is that of the reads, which a cache of a fifth of the data halves at most.
func TestICACHEMeasuresItsBenefit(t *testing.T) {
	cfg := Config{
		Trace: &Trace{Losses: recorded(t, 5)}, Capacity: 0.2, Ranks: 1, BatchSize: 64,
		Cluster: ioBound(),
	}
	for job, of := range ratios(t, cfg) {
		if low, high := slices.Min(of), slices.Max(of); low < 1.02 || high > 3 {
			t.Errorf("job %d: T_cacheless / T_cache is %v, want more than 1 and the few times "+
				"that a fifth of the data gives", job, of)
		}
	}
}

// TestICACHETellsJobsApart checks that a job that computes for longer than it reads gains nothing
// from the cache, and one that waits for storage gains as before: so their importance counts
// differently.
func TestICACHETellsJobsApart(t *testing.T) {
	cfg := Config{
		Trace: &Trace{Losses: recorded(t, 4)}, Capacity: 0.2, Ranks: 1, BatchSize: 64,
		Cluster: ioBound(),
	}
	cfg.JobSteps = []time.Duration{time.Millisecond, time.Second}
	of := ratios(t, cfg)
	if slices.Min(of[0]) < 1.02 || slices.Max(of[1]) > 1.02 {
		t.Errorf("the job that waits gains %v, the one that computes %v", of[0], of[1])
	}
}

// TestJobsWithLossesOfTheirOwn checks that each job learns from its own losses.
func TestJobsWithLossesOfTheirOwn(t *testing.T) {
	a := syntheticTrace(200, 4)
	b := make([][]float32, len(a.Losses))
	for e := range b {
		b[e] = slices.Clone(a.Losses[e])
		slices.Reverse(b[e])
	}
	cfg := Config{
		Trace: a, System: mustFind(t, "icache-h"), Capacity: 0.2, Ranks: 2, BatchSize: 10,
		Jobs: 2,
	}
	same := mustRun(t, cfg)
	cfg.JobLosses = [][][]float32{a.Losses, b}
	if other := mustRun(t, cfg); other.Hits >= same.Hits {
		t.Errorf("%d hits where jobs agree on what is important, %d where they do not", same.Hits,
			other.Hits)
	}
	cfg.JobLosses = [][][]float32{a.Losses, a.Losses}
	if again := mustRun(t, cfg); again.Hits != same.Hits ||
		again.StorageBytes != same.StorageBytes {
		t.Errorf("%d hits where both jobs are given the same losses, %d where they have those of "+
			"the trace", again.Hits, same.Hits)
	}
}
