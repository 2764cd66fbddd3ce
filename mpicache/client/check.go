package client

import (
	"rankpool/mpicache/door"
	"rankpool/mpicache/store"
	"rankpool/mpicache/training"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// A rank does not trust what arrives at its door. Package door reads no more bytes than a frame of
// its kind needs, and checks that all fields are there. This file checks each number in them once,
// before it is used, against the sender's identity and what the sender was given.
//
// A frame that breaks the rules ends its connection, with an error that wraps door.ErrFrame. A
// valid request that cannot be met is answered with a door.Error, and the connection stays open.
// Either affects only the sender.

// Limits on what a client may ask of a rank, besides those of package door: far more than two
// hundred trainers with all their workers need.
const (
	maxConns      = 8192 // connections to a rank
	maxConnsOfOne = 2048 // connections of a process to a rank

	// maxEmbedding bounds the length of an embedding, and maxEmbedded the bytes of the embeddings of a
	// trainer's part of a batch, which other ranks get in one message.
	maxEmbedding = 4096
	maxEmbedded  = 32 << 20
)

// fewLosses is how many losses a trainer's part of a batch may have in any case.
const fewLosses = 1 << 16

// reportBytes returns the size of the largest REPORT of a training. A trainer's part of a batch has
// at most BatchSize samples. If that is more than fewLosses, it also has at most the samples of an
// epoch: each sample once, and up to one more per trainer if all get the same number (sampler
// torch). Below that, systems may draw more samples than there are: they repeat some to fill a
// batch.
func reportBytes(spec *protocol.Spec, samples int) int {
	epoch := max(samples+spec.World, fewLosses)
	return door.ReportBytes(min(spec.BatchSize, epoch), spec.Embeddings)
}

// checkSpec returns an error unless this client may send this spec.
func (c *Conn) checkSpec(spec *protocol.Spec, d *store.DataSet) error {
	if c.Trainer == door.ControlTrainer {
		return door.Broken("OPEN from a client that trains nothing")
	}
	if uint64(spec.Trainer) != uint64(c.Trainer) || uint64(spec.World) != uint64(c.World) {
		return door.Refuse("trainer %d of %d opens for trainer %d of %d", c.Trainer, c.World,
			spec.Trainer, spec.World)
	}
	if spec.Identity != d.Identity {
		return door.Refuse("data set %s is not the one that trainer %d trains on: its identity is %s "+
			"here, %s there; start the training anew", spec.Data, spec.Trainer, d.Identity,
			spec.Identity)
	}
	if _, err := c.door.Rank.System.NewSampler(spec.SamplerConfig(d.Samples)); err != nil {
		return door.Refuse("%s", err)
	}
	if s := *spec; s.Listed() &&
		(s.Seed != 0 || s.BatchSize != 0 || s.DropLast || s.SamplerDropLast) {
		return door.Refuse("a training that hands in its order has no seed, batch size or drop_last")
	}
	if want := c.door.Sampler; want != "" && spec.Sampler != want &&
		spec.Sampler != "sequential" && spec.Sampler != draw.InTorchsOrder {
		return door.Refuse("this cache goes with the sampler %s (--system), and trainer %d "+
			"draws with %s: give BatchSampler sampler=%q, "+
			"or run with --system rankpool,policy=…, which goes with any sampler", want,
			spec.Trainer, spec.Sampler, want)
	}
	if _, err := spec.Assignment(plan.AssignLocal); err != nil {
		return door.Refuse("%s", err)
	}
	return nil
}

// checkNeeds returns an error if spec lacks what the system needs to know of a training, and clears
// what the system does not use.
func checkNeeds(spec *protocol.Spec, system *systems.System, samples int) error {
	own := spec.Sampler == system.LiveSampler()
	if !system.NeedsEpochs {
		spec.Epochs = 0
	} else if own {
		if err := system.CheckEpochs(spec.Epochs, samples); err != nil {
			return door.Refuse("%s", err)
		}
	}
	if !system.Evaluates || !own {
		spec.Evaluates = false
	} else if !spec.Evaluates {
		return door.Refuse("%s has batches that are evaluated and not trained on: use "+
			"BatchSampler(…, evaluates=True), and make no step with a batch of which "+
			"sampler.evaluating(ids) is true, but report its losses", system.Name)
	}
	if !system.NeedsEmbeddings || !own {
		spec.Embeddings = 0
		return nil
	}
	return checkEmbeddings(spec, system.Name)
}

// checkEmbeddings checks the length of the embeddings for a system that scores samples by them. It
// returns an error if there is none, or if it is too large, by itself or for the batch size.
func checkEmbeddings(spec *protocol.Spec, system string) error {
	switch d := spec.Embeddings; {
	case d == 0:
		return door.Refuse("%s scores samples by their embeddings: give their length, "+
			"BatchSampler(…, embeddings=D), and report them, "+
			"sampler.report(ids, losses, embeddings=z)", system)
	case d < 0 || d > maxEmbedding:
		return door.Refuse("an embedding must have 1 to %d numbers, not %d", maxEmbedding, d)
	case spec.BatchSize > maxEmbedded/4/d:
		return door.Refuse("embeddings of %d numbers go with batches of at most %d samples, not %d: "+
			"make either smaller", d, maxEmbedded/4/d, spec.BatchSize)
	}
	return nil
}

// opened returns the training that a frame names, if this connection has opened it.
func (c *Conn) opened(index uint32) (*training.Training, error) {
	s := c.trainings[index]
	if s == nil {
		return nil, door.Broken("data set number %d, which this connection has not opened", index)
	}
	return s, nil
}
