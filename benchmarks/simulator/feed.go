package simulator

import (
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// A feed produces the draws of a job.
type feed interface {
	// begin draws an epoch, one after the other from 0 on.
	begin(epoch int) (*plan.Plan, error)
	// cut announces that the current epoch has reached its cut, and another will follow.
	cut(epoch int) error
	// report reports the losses of the samples drawn in a global batch.
	report(epoch, number int, losses []float32)
	// score returns the current importance of a sample, for predictions.
	score(id draw.SampleID) float32
}

// planConfig returns the configuration of a job's plans. Hashes choose the homes, so that consumers
// are the same for every system.
func (s *setup) planConfig(sampler draw.Sampler) plan.Config {
	cfg := plan.Config{
		Sampler: sampler, Samples: s.Trace.Samples(), BatchSize: s.BatchSize, Ranks: s.Ranks,
		Rank: plan.AllRanks, Assignment: s.assignment(), Pieces: s.pieces,
	}
	for t := range s.trainers() {
		cfg.World = append(cfg.World, s.rankOf(t))
	}
	return cfg
}

// trainers returns the number of trainers on all ranks.
func (c *Config) trainers() int { return c.Ranks * max(c.TrainersPerRank, 1) }

// rankOf returns the rank of a trainer.
func (c *Config) rankOf(trainer int) int32 { return int32(trainer / max(c.TrainersPerRank, 1)) }

// assignment returns how draws are assigned to trainers. The samplers of published systems are
// PyTorch's DistributedSampler or derived from it, which assigns place j to trainer j mod W. Only
// rankpool, and the bounds that it is compared with, let the plan choose.
func (c *Config) assignment() plan.Assignment {
	if c.System.Name == "rankpool" || c.System.Offline() {
		return plan.AssignLocal
	}
	return plan.AssignSampler
}

func (s *setup) newSampler(name string, job int) (draw.Sampler, error) {
	return draw.NewSampler(s.samplerConfig(name, job))
}

func (s *setup) samplerConfig(name string, job int) draw.SamplerConfig {
	cfg := draw.SamplerConfig{
		Name: name, Samples: s.Trace.Samples(), Seed: s.Seed + int64(job), BatchSize: s.BatchSize,
		World: s.trainers(), DropLast: s.DropLast,
		Room: systems.ShareOf(s.capacityBytes, s.Trace.Samples(), s.size),
	}
	if s.Sampler == "" {
		s.System.Sample(s.Values, &cfg)
	} else {
		s.Values.Sample(&cfg)
	}
	return cfg
}

// plannedFeed draws as a rank does: an epoch is planned from the scores before the cut of the
// previous epoch, and scores come from the losses of the samples that are drawn. So its draws do
// not depend on what a cache does.
type plannedFeed struct{ *training }

func (s *setup) newPlannedFeed(job int) (feed, error) {
	sampler, err := s.newSampler(s.sampler, job)
	if err != nil {
		return nil, err
	}
	return plannedFeed{s.newTraining(s.Seed+int64(job), s.planConfig(sampler), nil, nil)}, nil
}

func (f plannedFeed) begin(epoch int) (*plan.Plan, error) {
	return f.training.begin(epoch), nil
}

// cut implements feed: the coordinator knows when an epoch is at its cut.
func (f plannedFeed) cut(int) error { return nil }

// ownFeed draws as a published system does, which may choose sampler and weights itself, from what
// it knows at the cut of the previous epoch, as ranks do. Scores come from the losses of the
// samples that are served.
type ownFeed struct {
	setup  *setup
	job    int
	scores *systems.Scores
	pool   systems.Pool
	ahead  *plan.Plan // of the epoch that comes next, once it is drawn
	after  []byte     // the state of a draw.Resumer
}

func (f *ownFeed) begin(epoch int) (*plan.Plan, error) {
	if f.ahead == nil {
		if err := f.cut(epoch - 1); err != nil {
			return nil, err
		}
	}
	p := f.ahead
	f.ahead = nil
	if r, ok := f.pool.(systems.Repeater); ok {
		repeated := draw.Listed(r.Repeat(f.job, epoch, p.IDs))
		p = plan.New(f.setup.planConfig(repeated), epoch, nil)
	}
	return p, nil
}

// cut implements feed: it draws the next epoch.
func (f *ownFeed) cut(epoch int) (err error) {
	f.ahead, err = f.draw(epoch + 1)
	return err
}

func (f *ownFeed) draw(epoch int) (*plan.Plan, error) {
	name, weights := f.setup.sampler, slices.Clone(f.scores.Cut)
	if d, ok := f.pool.(systems.Drawer); ok {
		d.Cut(f.job)
		ids := d.Draw(f.job, epoch, weights)
		if f.setup.DropLast {
			ids = ids[:len(ids)-len(ids)%f.setup.globalBatch()]
		}
		return plan.New(f.setup.planConfig(draw.Listed(ids)), epoch, nil), nil
	}
	r, resamples := f.pool.(systems.Resampler)
	if resamples {
		name, weights = r.Resample(f.job, epoch, weights)
	}
	cfg := f.setup.samplerConfig(name, f.job)
	if resamples {
		cfg.Floor = draw.NoFloor // as published
	}
	sampler, err := draw.NewSampler(cfg)
	if err != nil {
		return nil, err
	}
	m := &protocol.MakePlan{Learned: protocol.Known(f.after)}
	if err := systems.Prepare(sampler, m); err != nil {
		return nil, err
	}
	p := plan.New(f.setup.planConfig(sampler), epoch, weights)
	f.after = p.After()
	return p, nil
}

func (f *ownFeed) report(int, int, []float32) {}

func (f *ownFeed) score(id draw.SampleID) float32 { return f.scores.Of[id] }
