package training

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
	"rankpool/scheduler/systems"
)

// setup is everything that a rank's plans of a training depend on, besides scores. It must not
// change once it is used.
type setup struct {
	rank, ranks int
	world       []int32 // rank of each trainer
	sampler     draw.SamplerConfig
	assignment  plan.Assignment
	pieces      *plan.Pieces   // what samples are made of; nil: each is one piece
	pieceScores []float32      // 1 for each piece, once there are scores
	policy      string         // name for systems.NewPolicy
	values      systems.Values // the policy's options; the sampler's are in sampler
	book        *book          // of a system whose own sampler draws; nil: the policy decides
	shared      bool           // other trainings may use the same memory, see plan.Config
}

// book is what the draws of systems.Chooser and systems.Learner depend on, besides the rest of
// setup.
type book struct {
	system        *systems.System
	capacityBytes int64 // of all ranks together
	epochs        int
	size          func(draw.SampleID) int64 // as the system counts it
	initial       float32
	// of a system that scores samples by embeddings: each sample's class, and the length of an
	// embedding
	labels     []int32
	dimensions int
}

// newSampler returns the sampler of the plans.
func (s *setup) newSampler() (draw.Sampler, error) {
	if s.book == nil {
		return draw.NewSampler(s.sampler)
	}
	cfg, err := s.chooserConfig()
	if err != nil {
		return nil, err
	}
	if cfg.System.Learns() {
		return systems.NewLearner(cfg)
	}
	return systems.NewChooser(cfg)
}

// newLearner returns what follows training, if the plans' sampler draws by what it learns, and nil
// otherwise. make must have accepted the setup.
func (s *setup) newLearner() protocol.Learner {
	if s.book == nil {
		sampler, err := s.newSampler()
		if err != nil {
			return nil
		}
		return protocol.NewResumerLearner(sampler)
	}
	cfg, err := s.chooserConfig()
	if err != nil {
		return nil
	}
	l, err := systems.NewFollower(cfg)
	if err != nil {
		panic("mpicache: " + err.Error())
	}
	return l
}

func (s *setup) chooserConfig() (cfg systems.ChooserConfig, err error) {
	if err := s.book.system.Check(s.values); err != nil {
		return cfg, err
	}
	return systems.ChooserConfig{
		System: s.book.system, Values: s.values, Sampler: s.sampler, World: s.world, Ranks: s.ranks,
		Epochs:        s.book.epochs,
		CapacityBytes: s.book.capacityBytes, Size: s.book.size, Initial: s.book.initial,
		Labels: s.book.labels, Dimensions: s.book.dimensions,
	}, nil
}

// make returns what plans are made from, and a new policy. It returns an error if either is
// unknown, or does not support that many samples and trainers.
func (s *setup) make() (plan.Config, stager.Policy, error) {
	sampler, err := s.newSampler()
	if err != nil {
		return plan.Config{}, nil, err
	}
	policy, err := systems.NewPolicy(s.policy, systems.PolicyConfig{
		Seed: s.sampler.Seed, Values: s.values,
	})
	if err != nil {
		return plan.Config{}, nil, err
	}
	return plan.Config{
		Sampler: sampler, Samples: s.sampler.Samples, BatchSize: s.sampler.BatchSize,
		World: s.world, Ranks: s.ranks, Rank: s.rank, Assignment: s.assignment,
		Shared: s.shared, Pieces: s.pieces,
	}, policy, nil
}
