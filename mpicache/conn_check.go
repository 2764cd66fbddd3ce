package mpicache

import (
	"math"
	"math/bits"
	"slices"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// A rank does not trust what arrives at its door. Package door reads no more bytes than a frame of
// its kind needs, and checks that all fields are there. This file checks each number in them once,
// before it is used, against the sender's identity and what the sender was given. The rest of the
// package relies on that.
//
// A frame that breaks the rules ends its connection, with an error that wraps door.ErrFrame. A
// valid request that cannot be met is answered with a door.Error, and the connection stays open.
// Either affects only the sender.

// Limits on what a client may ask of a rank, besides those of package door: far more than two
// hundred trainers with all their workers need.
const (
	maxConns      = 8192 // connections to a rank
	maxConnsOfOne = 2048 // connections of a process to a rank

	maxGets    = 1024 // GETs without a reply, of a connection
	maxWaiting = 64   // other requests without a reply, of each kind
	// maxEmbedding bounds the length of an embedding, and maxEmbedded the bytes of the embeddings of a
	// trainer's part of a batch, which other ranks get in one message.
	maxEmbedding = 4096
	maxEmbedded  = 32 << 20
	maxName      = 256 // bytes of a metric's name
	maxMetrics   = 256 // of an epoch
	maxEpoch     = math.MaxInt32 - 1

	// A restarted rank gets what its trainers still know of earlier epochs: losses of three, counts
	// and metrics of nine. Messages about more epochs are invalid.
	maxHeldEpochs = 3
	maxToldEpochs = 16

	// maxTalliedMicroseconds is a year: no trainer waits or trains for longer in an epoch.
	maxTalliedMicroseconds = 366 * 24 * 3600 * 1e6
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
func (c *conn) checkSpec(spec *protocol.Spec, d *DataSet) error {
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
	if _, err := c.node.cfg.system().NewSampler(spec.SamplerConfig(d.Samples)); err != nil {
		return door.Refuse("%s", err)
	}
	if want := c.node.cfg.Sampler; want != "" && spec.Sampler != want &&
		spec.Sampler != "sequential" && spec.Sampler != draw.InTorchsOrder {
		return door.Refuse("this cache goes with the sampler %s (--system, --sampler), and trainer %d "+
			"draws with %s: give BatchSampler sampler=%q, "+
			"or run with --policy, which goes with any sampler", want, spec.Trainer, spec.Sampler,
			want)
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

// opened returns the stream that a frame names, if this connection has opened it.
func (c *conn) opened(index uint32) (*stream, error) {
	s := c.streams[index]
	if s == nil {
		return nil, door.Broken("data set number %d, which this connection has not opened", index)
	}
	return s, nil
}

// checkPlace returns an error unless the stream can have this epoch and batch.
func (s *stream) checkPlace(epoch, batch uint32) error {
	if n := s.coordinator.Spec().Batches(s.data.Samples); int64(batch) >= int64(n) {
		return door.Broken("batch %d, of %d in an epoch", batch, n)
	}
	return checkEpoch(epoch)
}

func checkEpoch(epoch uint32) error {
	if epoch > maxEpoch {
		return door.Broken("epoch %d, where %d is the last", epoch, maxEpoch)
	}
	return nil
}

func (s *stream) checkGet(c *conn, g door.Get) error {
	if err := s.checkPlace(g.Epoch, g.Batch); err != nil {
		return err
	}
	c.mu.Lock()
	gets, leases := len(c.waiting), len(c.leases)
	c.mu.Unlock()
	plan := s.coordinator.Plan(int(g.Epoch))
	switch {
	case gets >= maxGets:
		return door.Broken("GET, where %d of this connection wait", gets)
	case s.coordinator.Conflict() != nil:
		return door.Refuse("%s", s.coordinator.Conflict())
	case plan != nil && int(g.Batch) >= plan.Batches():
		return door.Refuse("epoch %d has %d batches: batch %d does not exist", g.Epoch, plan.Batches(),
			g.Batch)
	case s.due[due{int(c.Trainer), int(g.Epoch), int(g.Batch)}]:
		return door.NotReady("the same batch was requested before and is still being read")
	case leases >= door.MaxLeases:
		return door.NotReady("this connection has %d leases: release some batches", leases)
	}
	return nil
}

// checkPlan also allows the batch after an epoch's last one: training may have ended there.
func (s *stream) checkPlan(c *conn, p door.Place) error {
	n := s.requested(c, door.KindPlan)
	batches := s.coordinator.Spec().Batches(s.data.Samples)
	switch {
	case n >= maxWaiting:
		return door.Broken("PLAN, where %d of this connection wait", n)
	case s.coordinator.Conflict() != nil:
		return door.Refuse("%s", s.coordinator.Conflict())
	case int64(p.Batch) > int64(batches):
		return door.Refuse("batch must be in [0, %d], not %d: an epoch has no more batches", batches,
			p.Batch)
	}
	return checkEpoch(p.Epoch)
}

func (s *stream) checkSave(c *conn, p door.Place) error {
	if n := s.requested(c, door.KindSave); n >= maxWaiting {
		return door.Broken("SAVE, where %d of this connection wait", n)
	}
	if n := s.coordinator.Spec().Batches(s.data.Samples); int64(p.Batch) > int64(n) {
		return door.Broken("SAVE of batch %d, of %d in an epoch", p.Batch, n)
	}
	return checkEpoch(p.Epoch)
}

// checkReport returns an error unless the losses, and the embeddings if the system needs them, fit
// the trainer's part of a batch in an epoch whose plan the trainer has. A restarted rank does not
// know that plan yet: it accepts everything possible.
func (s *stream) checkReport(c *conn, r door.Report) error {
	if err := s.checkPlace(r.Epoch, r.Batch); err != nil {
		return err
	}
	if epoch, ok := s.coordinator.In(int(c.Trainer)); ok && int(r.Epoch) > epoch {
		return door.Broken("losses of epoch %d from trainer %d, which is in epoch %d", r.Epoch,
			c.Trainer, epoch)
	}
	if want := s.coordinator.Spec().Embeddings; int(r.Dimensions) != want && len(r.Losses) > 0 {
		return door.Broken("embeddings of %d numbers, where they have %d", r.Dimensions, want)
	}
	plan := s.coordinator.Plan(int(r.Epoch))
	if plan == nil {
		spec := s.coordinator.Spec()
		if len(r.Losses) > spec.BatchSize {
			return door.Broken("%d losses of a batch, of which a trainer has %d samples", len(r.Losses),
				spec.BatchSize)
		}
		n, held := s.coordinator.Held(int(c.Trainer), int(r.Epoch), int(r.Batch))
		if n >= maxHeldEpochs*spec.Batches(s.data.Samples) && !held {
			return door.Broken("losses of %d batches, before there is a plan", n)
		}
		return nil
	}
	if int(r.Batch) >= plan.Batches() {
		return door.Broken("losses of batch %d, of %d in epoch %d", r.Batch, plan.Batches(), r.Epoch)
	}
	if n := plan.PartLen(int(r.Batch), int(c.Trainer)); n != len(r.Losses) {
		return door.Broken("%d losses of batch %d of epoch %d, of which trainer %d has %d samples",
			len(r.Losses), r.Batch, r.Epoch, c.Trainer, n)
	}
	return nil
}

// possible reports whether a worker whose previous tally was last can have reached t since: its
// epoch exists, the new samples and bytes fit into an epoch, and no time exceeds a year.
func (s *stream) possible(t, last door.Tally) bool {
	if checkEpoch(t.Epoch) != nil || !s.countable(int(t.Epoch)) ||
		max(t.Counts[stats.StallSeconds], t.Counts[stats.TrainSeconds]) > maxTalliedMicroseconds {
		return false
	}
	more := t.Counts
	if !t.Fell(last) {
		more = more.Minus(last.Counts)
	}
	spec, read := s.coordinator.Spec(), more[stats.EvaluatedReads]
	return max(more.Draws(), more[stats.Evaluated]) <=
		int64(spec.Batches(s.data.Samples)*spec.BatchSize) &&
		more[stats.SubstituteReads] <= more[stats.StorageReads]+more[stats.FallbackReads] &&
		read <= more[stats.Evaluated] &&
		s.fits(more[stats.StorageReads]+read, more[stats.StorageBytes]) &&
		s.fits(more[stats.FallbackReads]+read, more[stats.FallbackBytes])
}

// countable reports whether an epoch can have been trained: it was planned here, or before this
// rank was restarted.
func (s *stream) countable(epoch int) bool {
	if opened := s.coordinator.Open(); len(opened) > 0 {
		return epoch <= slices.Max(opened)
	}
	return s.epochs[epoch] != nil || len(s.epochs) < maxToldEpochs
}

// fits reports whether n samples can have size bytes.
func (s *stream) fits(n, size int64) bool {
	high, low := bits.Mul64(uint64(n), uint64(s.largest))
	return high > 0 || uint64(size) <= low
}

func (s *stream) checkMetric(m door.Metric) error {
	switch {
	case len(m.Name) > maxName:
		return door.Broken("METRIC with a name of %d bytes, where %d are the most", len(m.Name), maxName)
	case s.epochs[int(m.Epoch)] != nil && len(s.epochs[int(m.Epoch)].metrics) >= maxMetrics:
		return door.Broken("METRIC, where epoch %d has %d", m.Epoch, maxMetrics)
	}
	return checkEpoch(m.Epoch)
}
