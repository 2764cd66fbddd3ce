package record

import (
	"fmt"
	"slices"

	"rankpool/scheduler"
	"rankpool/scheduler/systems"
)

// Begin describes who wrote a recording, or a part of one: a restarted rank appends to its file,
// with another Begin.
type Begin struct {
	Version string `json:"version"` // of rankpool
	Session string `json:"session"` // of the run: the same in all lives of a rank
	Rank    int    `json:"rank"`
	Ranks   int    `json:"ranks"`
}

// Setup is everything that one rank's decisions about one data set depend on, besides events. Ranks
// and replays make their stagers from it. It must not change once it is used.
type Setup struct {
	Data       string                  `json:"data"`
	Rank       int                     `json:"rank"`
	Ranks      int                     `json:"ranks"`
	World      []int32                 `json:"world"` // rank of each trainer
	Sampler    scheduler.SamplerConfig `json:"sampler"`
	Assignment scheduler.Assignment    `json:"assignment"`
	Policy     string                  `json:"policy"` // name for systems.NewPolicy
	// the policy's options; the sampler's are in Sampler
	Values        systems.Values `json:"values,omitempty"`
	CapacityBytes int64          `json:"capacity_bytes"` // of this rank's partition
	// of samples that are not residents
	WindowBytes int64 `json:"window_bytes"`

	// of a system whose own sampler draws; nil: the policy decides
	Book *Book `json:"book,omitempty"`

	TierBytes      int64 `json:"tier_bytes,omitempty"` // of this rank's tier
	TierBlockBytes int64 `json:"tier_block_bytes,omitempty"`

	PackageBytes      int64 `json:"package_bytes,omitempty"` // see scheduler.StagerConfig
	PackageBlockBytes int64 `json:"package_block_bytes,omitempty"`

	OwnersRead bool `json:"owners_read,omitempty"` // see scheduler.StagerConfig

	// Size returns the memory that a sample needs, in bytes.
	Size func(scheduler.SampleID) int64 `json:"-"`
	// Kept is scheduler.StagerConfig.Kept.
	Kept func(id scheduler.SampleID, kept bool) `json:"-"`
}

// Book is what the draws of systems.Chooser and systems.Learner depend on, besides the rest of
// Setup.
type Book struct {
	System        string  `json:"system"`
	CapacityBytes int64   `json:"capacity_bytes"` // of all ranks together
	Epochs        int     `json:"epochs,omitempty"`
	SizesBytes    []int64 `json:"sizes_bytes"` // SizesOf the samples, as the system counts them
	Initial       float32 `json:"initial,omitempty"`
	// of a system that scores samples by embeddings: each sample's class, and the length of an
	// embedding
	Labels     []int32 `json:"labels,omitempty"`
	Dimensions int     `json:"dimensions,omitempty"`
}

// SizesOf returns the sizes of all samples; only one if they are equal.
func SizesOf(samples int, size func(scheduler.SampleID) int64) []int64 {
	sizes, equal := make([]int64, samples), true
	for id := range sizes {
		sizes[id] = size(scheduler.SampleID(id))
		equal = equal && sizes[id] == sizes[0]
	}
	if equal {
		return sizes[:1]
	}
	return sizes
}

// sizeIn returns the size function of what SizesOf has returned.
func sizeIn(sizes []int64) func(scheduler.SampleID) int64 {
	return func(id scheduler.SampleID) int64 { return sizes[min(int(id), len(sizes)-1)] }
}

// sampler returns the sampler of the plans.
func (s *Setup) sampler() (scheduler.Sampler, error) {
	if s.Book == nil {
		return scheduler.NewSampler(s.Sampler)
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

// NewLearner returns what follows training, if the plans' sampler draws by what it learns, and nil
// otherwise. New must have accepted the setup.
func (s *Setup) NewLearner() scheduler.Learner {
	if s.Book == nil {
		return nil
	}
	cfg, err := s.chooserConfig()
	if err != nil {
		return nil
	}
	l, err := systems.NewFollower(cfg)
	if err != nil {
		panic("record: " + err.Error())
	}
	return l
}

// Placement returns the placement of samples for a training that begins or, if from is not nil,
// continues from it; nil if a hash or the system decides where samples are. keptBytes is how many
// bytes each rank keeps, nil if plans may not place samples.
func (s *Setup) Placement(
	sampler scheduler.Sampler, keptBytes []int64, from *scheduler.Placed,
) *scheduler.Placement {
	_, chooses := sampler.(*systems.Chooser)
	switch {
	case keptBytes == nil || s.Policy != "clairvoyant" || chooses:
		return nil
	case from != nil:
		return scheduler.NewPlacement(from, s.Size)
	}
	return scheduler.PlacementFor(sampler, s.Sampler.Samples, keptBytes, s.Size)
}

func (s *Setup) chooserConfig() (cfg systems.ChooserConfig, err error) {
	system, err := systems.Find(s.Book.System)
	if err != nil {
		return cfg, err
	}
	if n := len(s.Book.SizesBytes); n != 1 && n != s.Sampler.Samples ||
		slices.Min(s.Book.SizesBytes) < 0 || s.Book.CapacityBytes < 0 {
		return cfg, fmt.Errorf("record: a book of %d sizes for %d samples", n, s.Sampler.Samples)
	}
	if err := system.Check(s.Values); err != nil {
		return cfg, err
	}
	return systems.ChooserConfig{
		System: system, Values: s.Values, Sampler: s.Sampler, World: s.World, Ranks: s.Ranks,
		Epochs:        s.Book.Epochs,
		CapacityBytes: s.Book.CapacityBytes, Size: sizeIn(s.Book.SizesBytes), Initial: s.Book.Initial,
		Labels: s.Book.Labels, Dimensions: s.Book.Dimensions,
	}, nil
}

// New returns what plans are made from, without Place, and an empty stager. It returns an error if
// the sampler or the policy is unknown, or does not support that many samples and trainers.
func (s *Setup) New() (scheduler.PlanConfig, *scheduler.Stager, error) {
	sampler, err := s.sampler()
	if err != nil {
		return scheduler.PlanConfig{}, nil, err
	}
	policy, err := systems.NewPolicy(s.Policy, systems.PolicyConfig{
		Seed: s.Sampler.Seed, Values: s.Values,
	})
	if err != nil {
		return scheduler.PlanConfig{}, nil, err
	}
	plan := scheduler.PlanConfig{
		Sampler: sampler, Samples: s.Sampler.Samples, BatchSize: s.Sampler.BatchSize,
		World: s.World, Ranks: s.Ranks, Rank: s.Rank, Assignment: s.Assignment,
	}
	return plan, scheduler.NewStager(scheduler.StagerConfig{
		Rank: s.Rank, Ranks: s.Ranks, World: s.World, Samples: s.Sampler.Samples, Size: s.Size,
		Policy:        policy,
		CapacityBytes: s.CapacityBytes, WindowBytes: s.WindowBytes, TierBytes: s.TierBytes,
		TierBlockBytes: s.TierBlockBytes, PackageBytes: s.PackageBytes,
		PackageBlockBytes: s.PackageBlockBytes, OwnersRead: s.OwnersRead, Kept: s.Kept,
	}), nil
}
