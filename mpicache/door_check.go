package mpicache

import (
	"fmt"
	"math/bits"
	"slices"

	"rankpool/mpicache/stats"
	"rankpool/scheduler"
)

// Nothing that arrives at the door is trusted. readFrame reads no more bytes than the kind of a
// frame needs, the parsers of frame.go check that its fields are there, and this file checks each
// number in them against the sender's identity and what it was given: once, before anything is done
// with it. The rest of the package relies on that.
//
// A frame that breaks the rules ends its connection, with a sentence that wraps errFrame. A valid
// request that cannot be met is answered with a refusal, and the connection stays. Either harms
// only the sender.

// refusal is the error reply to a request that is well-formed.
type refusal struct {
	code     uint16
	sentence string
}

func (r refusal) Error() string { return r.sentence }

func refuse(format string, args ...any) error {
	return refusal{codeRequest, fmt.Sprintf(format, args...)}
}

// broken is the error of a frame that the protocol does not allow.
func broken(format string, args ...any) error {
	return fmt.Errorf("mpicache: %s: %w", fmt.Sprintf(format, args...), errFrame)
}

// check returns an error unless h is a trainer's, or that of a client that trains nothing.
func (h helloFrame) check() error {
	switch {
	case h.version != ProtocolVersion:
		return broken("the client speaks version %d of the protocol, this rank version %d; use "+
			"the client that this rankpool brings along", h.version, ProtocolVersion)
	case h.trainer == ControlTrainer:
		return nil
	case h.world < 1 || h.world > maxWorld:
		return refuse("WORLD_SIZE must be in [1, %d], not %d", maxWorld, h.world)
	case h.trainer >= h.world:
		return refuse("RANK must be in [0, %d), below WORLD_SIZE, not %d", h.world, h.trainer)
	}
	return nil
}

// checkSpec returns an error unless the spec is one that this client may ask for.
func (c *conn) checkSpec(spec *Spec, d *DataSet) error {
	if c.trainer == ControlTrainer {
		return broken("OPEN from a client that trains nothing")
	}
	if uint64(spec.Trainer) != uint64(c.trainer) || uint64(spec.World) != uint64(c.world) {
		return refuse("trainer %d of %d opens for trainer %d of %d", c.trainer, c.world,
			spec.Trainer, spec.World)
	}
	if spec.Identity != d.Identity {
		return refuse("data set %s is not the one that trainer %d trains on: its identity is %s "+
			"here, %s there; start the training anew", spec.Data, spec.Trainer, d.Identity,
			spec.Identity)
	}
	if _, err := c.node.cfg.system().NewSampler(spec.SamplerConfig(d.Samples)); err != nil {
		return refuse("%s", err)
	}
	if want := c.node.cfg.Sampler; want != "" && spec.Sampler != want &&
		spec.Sampler != "sequential" {
		return refuse("this cache goes with the sampler %s (--system, --sampler), and trainer %d "+
			"draws with %s: give BatchSampler sampler=%q, "+
			"or run with --policy, which goes with any sampler", want, spec.Trainer, spec.Sampler,
			want)
	}
	if _, err := spec.Assignment(scheduler.AssignLocal); err != nil {
		return refuse("%s", err)
	}
	return nil
}

// checkEmbeddings returns an error unless a system that scores samples by their embeddings gets
// some that are neither too many nor too large.
func checkEmbeddings(spec *Spec, system string) error {
	switch d := spec.Embeddings; {
	case d == 0:
		return refuse("%s scores samples by their embeddings: say how many numbers one has, "+
			"BatchSampler(…, embeddings=D), and report them, "+
			"sampler.report(ids, losses, embeddings=z)", system)
	case d < 0 || d > maxEmbedding:
		return refuse("an embedding must have 1 to %d numbers, not %d", maxEmbedding, d)
	case spec.BatchSize > maxEmbedded/4/d:
		return refuse("embeddings of %d numbers go with batches of at most %d samples, not %d: "+
			"make either smaller", d, maxEmbedded/4/d, spec.BatchSize)
	}
	return nil
}

// opened returns the stream that a frame names, if this connection has opened it.
func (c *conn) opened(index uint32) (*stream, error) {
	s := c.streams[index]
	if s == nil {
		return nil, broken("data set number %d, which this connection has not opened", index)
	}
	return s, nil
}

// checkPlace returns an error unless the stream may have such an epoch and batch.
func (s *stream) checkPlace(epoch, batch uint32) error {
	if n := s.coordinator.Spec().Batches(s.data.Samples); int64(batch) >= int64(n) {
		return broken("batch %d, of %d in an epoch", batch, n)
	}
	return checkEpoch(epoch)
}

func checkEpoch(epoch uint32) error {
	if epoch > maxEpoch {
		return broken("epoch %d, where %d is the last", epoch, maxEpoch)
	}
	return nil
}

func (s *stream) checkGet(c *conn, g getFrame) error {
	if err := s.checkPlace(g.epoch, g.batch); err != nil {
		return err
	}
	gets, leases := c.held()
	plan := s.coordinator.Plan(int(g.epoch))
	switch {
	case gets >= maxGets:
		return broken("GET, where %d of this connection wait", gets)
	case s.coordinator.Conflict() != nil:
		return refuse("%s", s.coordinator.Conflict())
	case plan != nil && int(g.batch) >= plan.Batches():
		return refuse("epoch %d has %d batches: there is no batch %d", g.epoch, plan.Batches(),
			g.batch)
	case s.due[due{int(c.trainer), int(g.epoch), int(g.batch)}]:
		return refusal{codeNotReady, "the same batch is being asked for already"}
	case leases >= maxLeases:
		return refusal{
			codeNotReady,
			fmt.Sprintf("this connection has %d leases: let go of some batches", leases),
		}
	}
	return nil
}

// checkPlan also allows the number of batches: training ended there.
func (s *stream) checkPlan(c *conn, p placeFrame) error {
	n := s.requested(c, KindPlan)
	batches := s.coordinator.Spec().Batches(s.data.Samples)
	switch {
	case n >= maxWaiting:
		return broken("PLAN, where %d of this connection wait", n)
	case s.coordinator.Conflict() != nil:
		return refuse("%s", s.coordinator.Conflict())
	case int64(p.batch) > int64(batches):
		return refuse("batch must be in [0, %d], not %d: an epoch has no more batches", batches,
			p.batch)
	}
	return checkEpoch(p.epoch)
}

func (s *stream) checkSave(c *conn, p placeFrame) error {
	if n := s.requested(c, KindSave); n >= maxWaiting {
		return broken("SAVE, where %d of this connection wait", n)
	}
	if n := s.coordinator.Spec().Batches(s.data.Samples); int64(p.batch) > int64(n) {
		return broken("SAVE of batch %d, of %d in an epoch", p.batch, n)
	}
	return checkEpoch(p.epoch)
}

// checkReport returns an error unless the losses, and their embeddings where the system needs them,
// are of the trainer's part of a batch of an epoch
// whose plan it has. A rank that was restarted does not know that plan yet: it accepts anything
// possible.
func (s *stream) checkReport(c *conn, r reportFrame) error {
	if err := s.checkPlace(r.epoch, r.batch); err != nil {
		return err
	}
	if epoch, ok := s.coordinator.In(int(c.trainer)); ok && int(r.epoch) > epoch {
		return broken("losses of epoch %d from trainer %d, which is in epoch %d", r.epoch,
			c.trainer, epoch)
	}
	if want := s.coordinator.Spec().Embeddings; int(r.dimensions) != want && len(r.losses) > 0 {
		return broken("embeddings of %d numbers, where they have %d", r.dimensions, want)
	}
	plan := s.coordinator.Plan(int(r.epoch))
	if plan == nil {
		spec := s.coordinator.Spec()
		if len(r.losses) > spec.BatchSize {
			return broken("%d losses of a batch, of which a trainer has %d samples", len(r.losses),
				spec.BatchSize)
		}
		n, held := s.coordinator.Held(int(c.trainer), int(r.epoch), int(r.batch))
		if n >= maxHeldEpochs*spec.Batches(s.data.Samples) && !held {
			return broken("losses of %d batches, before there is a plan", n)
		}
		return nil
	}
	if int(r.batch) >= plan.Batches() {
		return broken("losses of batch %d, of %d in epoch %d", r.batch, plan.Batches(), r.epoch)
	}
	if n := plan.PartLen(int(r.batch), int(c.trainer)); n != len(r.losses) {
		return broken("%d losses of batch %d of epoch %d, of which trainer %d has %d samples",
			len(r.losses), r.batch, r.epoch, c.trainer, n)
	}
	return nil
}

// possible reports whether a teller whose previous tally was last can have counted t since: in an
// existing epoch, existing samples, and seconds that have passed.
func (s *stream) possible(t, last tally) bool {
	if checkEpoch(t.epoch) != nil || !s.countable(int(t.epoch)) ||
		max(t.counts[stats.StallSeconds], t.counts[stats.TrainSeconds]) > maxTalliedMicroseconds {
		return false
	}
	more := t.counts
	if !t.fell(last) {
		more = more.Minus(last.counts)
	}
	spec := s.coordinator.Spec()
	return more.Draws() <= int64(spec.Batches(s.data.Samples)*spec.BatchSize) &&
		more[stats.SubstituteReads] <= more[stats.StorageReads]+more[stats.FallbackReads] &&
		s.fits(more[stats.StorageReads], more[stats.StorageBytes]) &&
		s.fits(more[stats.FallbackReads], more[stats.FallbackBytes])
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

func (s *stream) checkMetric(m metricFrame) error {
	switch {
	case len(m.Name) > maxName:
		return broken("METRIC with a name of %d bytes, where %d are the most", len(m.Name), maxName)
	case s.epochs[int(m.Epoch)] != nil && len(s.epochs[int(m.Epoch)].metrics) >= maxMetrics:
		return broken("METRIC, where epoch %d has %d", m.Epoch, maxMetrics)
	}
	return checkEpoch(m.Epoch)
}

func (s *samples) checkWarm(c *conn, w warmFrame) error {
	n := 0
	for _, r := range s.warm.requests {
		if r.conn == c {
			n++
		}
	}
	switch {
	case n >= maxWaiting:
		return broken("WARM, where %d of this connection wait", n)
	case s.outOfRange(w.ids):
		return refuse("data set %s has %d samples", s.data.Name, s.data.Samples)
	case s.closed:
		return refusal{codeStopping, "the rank is stopping"}
	case s.stager != nil || s.warm.begun:
		return refusal{codeBegun, "training has begun, and its plan decides what is in memory"}
	}
	return nil
}
