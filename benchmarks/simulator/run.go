// Package simulator runs cache systems over losses recorded from training, and counts where draws
// are served from. The system rankpool is run by the real schedulers, one per rank; the published
// systems are run as pools; a time model gives the duration of an epoch.
package simulator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
	"rankpool/scheduler/systems"
)

// Run simulates one system with one capacity. The same cfg gives the same Result, on any machine
// and with any GOMAXPROCS.
//
// Zero Epochs and Jobs mean all epochs of the trace, and one job. The system rankpool is run by its
// real schedulers, one per rank, if a single job has the memory to itself; every other system is
// run as a pool, see systems.Pool.
//
// It returns an error that says what to change if a number is out of range or a name is unknown. It
// may be called concurrently; the trace is only read.
func Run(cfg Config) (*Result, error) {
	s, err := newSetup(cfg)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	if s.System.Name == "rankpool" && s.Jobs == 1 {
		return runStagers(s)
	}
	p, err := newPooled(s)
	if err != nil {
		return nil, fmt.Errorf("simulator: %s: %w", cfg.System.Name, err)
	}
	for epoch := range s.Epochs {
		if err := p.epoch(epoch); err != nil {
			return nil, fmt.Errorf("simulator: %s: %w", cfg.System.Name, err)
		}
	}
	return p.count.finish(), nil
}

// setup is a Config with every default filled in.
type setup struct {
	Config
	sampler, scorer, policy string
	// of the scores that a sampler draws from when they are not the system's
	drawScorer    string
	own           bool            // the system draws for itself
	owner         *systems.System // whose options Values are
	pieces        *plan.Pieces    // nil: each sample is one
	totalBytes    int64
	capacityBytes int64
}

func newSetup(cfg Config) (*setup, error) {
	s := &setup{Config: cfg}
	s.Epochs = cmp.Or(s.Epochs, len(cfg.Trace.Losses))
	s.Jobs, s.TrainersPerRank = cmp.Or(s.Jobs, 1), cmp.Or(s.TrainersPerRank, 1)
	if err := s.checkNumbers(); err != nil {
		return nil, err
	}
	if err := s.name(); err != nil {
		return nil, err
	}
	if err := cmp.Or(s.checkPieces(), s.checkTrace()); err != nil {
		return nil, err
	}
	s.pieces = s.newPieces()
	s.measure()
	return s, nil
}

func (s *setup) checkNumbers() error {
	switch epochs := len(s.Trace.Losses); {
	case !(s.Capacity > 0 && s.Capacity <= 1):
		return fmt.Errorf("the capacity is %v, it must be above 0 and at most 1", s.Capacity)
	case s.DropLast && s.Trace.Samples() < s.BatchSize*s.trainers():
		return fmt.Errorf("%d samples are fewer than a global batch of %d, so drop_last leaves none",
			s.Trace.Samples(), s.BatchSize*s.trainers())
	case s.Ranks < 1 || s.TrainersPerRank < 1 || s.BatchSize < 1 || s.Jobs < 1:
		return fmt.Errorf(
			"%d ranks of %d trainers, a batch size of %d and %d jobs: each must be at least 1",
			s.Ranks, s.TrainersPerRank, s.BatchSize, s.Jobs)
	case s.Epochs < 1 || s.Epochs > epochs:
		return fmt.Errorf("the number of epochs is %d, the trace has 1 to %d", s.Epochs, epochs)
	case len(s.JobSteps) > 0 && len(s.JobSteps) != s.Jobs ||
		len(s.JobLosses) > 0 && len(s.JobLosses) != s.Jobs:
		return fmt.Errorf("there are %d jobs, and steps of %d and losses of %d", s.Jobs,
			len(s.JobSteps), len(s.JobLosses))
	case len(s.JobSteps) > 0 && slices.Min(s.JobSteps) <= 0:
		return fmt.Errorf("a job's step takes %v, it must take more than 0", slices.Min(s.JobSteps))
	case s.SkipEpochs < 0 || s.SkipEpochs >= s.Epochs:
		return fmt.Errorf(
			"%d epochs are skipped, it must be at least 0 and fewer than the %d that are trained",
			s.SkipEpochs, s.Epochs)
	}
	return nil
}

// name resolves the names of the parts, and checks those that nothing else checks.
func (s *setup) name() error {
	s.owner = s.System
	if s.Policy != "" && s.Policy != s.System.Policy {
		if s.System.Offline() {
			return fmt.Errorf("%s is a bound with a policy of its own, it takes no other",
				s.System.Name)
		}
		owner := systems.PolicyOwner(s.Policy)
		if owner == nil {
			return systems.Unknown("policy", s.Policy, systems.PolicyNames())
		}
		alone := *owner
		alone.NewPool = nil
		s.owner = &alone
	}
	s.sampler = cmp.Or(s.Sampler, s.System.Sampler)
	s.scorer = cmp.Or(s.Scorer, s.System.Scorer, s.owner.Scorer)
	s.policy = cmp.Or(s.Policy, s.System.Policy)
	s.own = s.Sampler == "" && s.owner.NewPool != nil
	s.drawScorer = s.scorer
	if s.Sampler != "" {
		s.drawScorer = s.Scorer
	}
	s.drawScorer = cmp.Or(s.drawScorer, protocol.DefaultScorer(s.sampler))
	// it uses no scores but those of the draws
	if s.owner.Offline() || s.owner.Name == "rankpool" || s.scorer == "" {
		s.scorer = s.drawScorer
	}
	for _, name := range []string{s.scorer, s.drawScorer} {
		if known := protocol.ScorerNames(); name != "" && !slices.Contains(known, name) {
			return systems.Unknown("scorer", name, known)
		}
	}
	if known := draw.SamplerNames(); s.Sampler != "" && !slices.Contains(known, s.Sampler) {
		return systems.Unknown("sampler", s.Sampler, known)
	}
	for _, option := range slices.Sorted(maps.Keys(s.Values)) {
		if of := systems.SamplersOf(option); of != nil &&
			(s.System.CheckName(option) == nil || slices.Contains(of, draw.Thrifty)) {
			continue // the sampler takes it, whatever the policy
		}
		if err := s.owner.CheckName(option); err != nil {
			return err
		}
	}
	return cmp.Or(s.owner.Check(s.Values), s.System.Check(s.Values))
}

// checkTrace returns an error if the trace lacks something that the system needs.
func (s *setup) checkTrace() error {
	switch {
	case s.owner.NeedsLabels && s.Trace.Labels == nil:
		return fmt.Errorf("%s needs the samples' labels, and the trace has none", s.owner.Name)
	case s.owner.NeedsEmbeddings && s.Trace.Embeddings == nil:
		return fmt.Errorf("%s needs the samples' embeddings, and the trace has none", s.owner.Name)
	}
	return nil
}

// measure finds the bytes of the data set and of the memory. With samples of one size the memory
// holds a whole number of them.
func (s *setup) measure() {
	n := s.held()
	for id := range draw.SampleID(n) {
		s.totalBytes += s.size(id)
	}
	s.capacityBytes = systems.BookBytes(s.Capacity, n, s.size)
}

// size returns the size of a sample in bytes.
func (s *setup) size(id draw.SampleID) int64 {
	switch {
	case s.Trace.SizesBytes != nil:
		return s.Trace.SizesBytes[id]
	case s.Cluster != nil && s.Cluster.SampleBytes > 0:
		return s.Cluster.SampleBytes
	}
	return 1
}

// meanBytes returns the mean size of a sample.
func (s *setup) meanBytes() int64 { return s.totalBytes / int64(s.held()) }

func (s *setup) globalBatch() int { return s.BatchSize * s.trainers() }

// newPool returns the system's pool.
func (s *setup) newPool(
	memory *systems.Memory, scores []*systems.Scores, took func(job, begin, end int) float64,
) systems.Pool {
	cfg := systems.PoolConfig{
		System: s.owner, Values: s.Values, Samples: s.held(), Jobs: s.Jobs, Ranks: s.Ranks,
		TrainersPerRank: s.TrainersPerRank, Epochs: s.Epochs,
		GlobalBatch: s.globalBatch(), Seed: s.Seed, Memory: memory, Scores: scores,
		Labels: s.Trace.Labels, StepSeconds: s.stepSeconds(),
		BatchSeconds: took, Machine: s.machine(),
	}
	if s.Trace.Embeddings != nil {
		cfg.Dimensions = len(s.Trace.Embeddings[0][0])
	}
	switch {
	case s.owner.Name == "min-partitioned":
		return s.newMinPool(memory)
	case s.owner.Offline():
		return systems.NewPolicyPool(cfg, stager.NewClairvoyant())
	case s.owner.NewPool != nil:
		return s.owner.NewPool(cfg)
	}
	return systems.NewPolicyPool(cfg, cfg.NewPolicy())
}

// stepSeconds returns PoolConfig.StepSeconds by the time model, nil without one.
func (s *setup) stepSeconds() func(int) (float64, float64) {
	if s.Cluster == nil {
		return nil
	}
	return func(job int) (float64, float64) {
		cluster := *s.clusterOf(job)
		cluster.SampleBytes = s.meanBytes()
		return cluster.Step(s.nodes())
	}
}

// clusterOf returns the machine with the step of a job.
func (s *setup) clusterOf(job int) *Cluster {
	if len(s.JobSteps) == 0 {
		return s.Cluster
	}
	c := *s.Cluster
	c.Trainer = Trainer{
		BatchSize: 1, Step: s.JobSteps[job] / time.Duration(s.BatchSize),
		Reduce: s.JobSteps[job] % time.Duration(s.BatchSize),
	}
	return &c
}

// slowest returns the machine with the longest step of all jobs: they take their steps in parallel.
func (s *setup) slowest() *Cluster {
	if len(s.JobSteps) == 0 {
		return s.Cluster
	}
	return s.clusterOf(slices.Index(s.JobSteps, slices.Max(s.JobSteps)))
}

// traceOf returns the trace of a job.
func (s *setup) traceOf(job int) *Trace {
	if len(s.JobLosses) == 0 {
		return s.Trace
	}
	t := *s.Trace
	t.Losses = s.JobLosses[job]
	return &t
}

// machine returns PoolConfig.Machine by the cluster file, nil without one.
func (s *setup) machine() *systems.NoPFSModel {
	if s.Cluster == nil {
		return nil
	}
	return s.Cluster.nopfsModel(s.nodes(), s.meanBytes())
}

// newClock returns the time model, nil without a cluster. A system that knows an epoch before it
// begins loads across the boundary, as many batches ahead as a rank does (package stager,
// aheadBatches); the others run under a framework's data loader, which starts over.
func (s *setup) newClock() *Clock {
	ahead := 0
	switch {
	case s.Cluster == nil:
		return nil
	case s.plansAhead():
		ahead = max(2, min(64, s.Trace.Samples()/s.globalBatch()/4))
	}
	return NewClock(s.slowest(), s.nodes(), ahead)
}

// nodes returns the nodes of the time model.
func (s *setup) nodes() Nodes { return Nodes{s.Ranks, s.TrainersPerRank, s.BatchSize} }

func (s *setup) plansAhead() bool {
	return s.System.Offline() || s.System.Name == "rankpool" || s.System.Name == "nopfs"
}
