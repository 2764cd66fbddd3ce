package training

import (
	"math"
	"math/bits"
	"slices"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
)

// Limits on what a client may ask of a training, besides those of packages door and client: far
// more than two hundred trainers with all their workers need.
const (
	maxGets    = 1024 // GETs without a reply, of a connection
	maxWaiting = 64   // other requests without a reply, of each kind
	maxName    = 256  // bytes of a metric's name
	maxMetrics = 256  // of an epoch
	MaxEpoch   = math.MaxInt32 - 1

	// A restarted rank gets what its trainers still know of earlier epochs: losses of three, counts
	// and metrics of nine. Messages about more epochs are invalid.
	MaxHeldEpochs = 3
	MaxToldEpochs = 16

	// maxTalliedMicroseconds is a year: no trainer waits or trains for longer in an epoch.
	maxTalliedMicroseconds = 366 * 24 * 3600 * 1e6
)

// checkPlace returns an error unless the training can have this epoch and batch.
func (s *Training) checkPlace(epoch, batch uint32) error {
	if n := s.coordinator.Spec().Batches(s.data.Samples); int64(batch) >= int64(n) {
		return door.Broken("batch %d, of %d in an epoch", batch, n)
	}
	return checkEpoch(epoch)
}

func checkEpoch(epoch uint32) error {
	if epoch > MaxEpoch {
		return door.Broken("epoch %d, where %d is the last", epoch, MaxEpoch)
	}
	return nil
}

// checkPlan also allows the batch after an epoch's last one: training may have ended there.
func (s *Training) checkPlan(c Client, p door.Place) error {
	n := s.requests.of(c, door.KindPlan)
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

func (s *Training) checkSave(c Client, p door.Place) error {
	if n := s.requests.of(c, door.KindSave); n >= maxWaiting {
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
func (s *Training) checkReport(c Client, r door.Report) error {
	if err := s.checkPlace(r.Epoch, r.Batch); err != nil {
		return err
	}
	if epoch, ok := s.coordinator.In(int(c.ID().Trainer)); ok && int(r.Epoch) > epoch {
		return door.Broken("losses of epoch %d from trainer %d, which is in epoch %d", r.Epoch,
			c.ID().Trainer, epoch)
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
		n, held := s.coordinator.Held(int(c.ID().Trainer), int(r.Epoch), int(r.Batch))
		if n >= MaxHeldEpochs*spec.Batches(s.data.Samples) && !held {
			return door.Broken("losses of %d batches, before there is a plan", n)
		}
		return nil
	}
	if int(r.Batch) >= plan.Batches() {
		return door.Broken("losses of batch %d, of %d in epoch %d", r.Batch, plan.Batches(), r.Epoch)
	}
	if n := plan.PartLen(int(r.Batch), int(c.ID().Trainer)); n != len(r.Losses) {
		return door.Broken("%d losses of batch %d of epoch %d, of which trainer %d has %d samples",
			len(r.Losses), r.Batch, r.Epoch, c.ID().Trainer, n)
	}
	return nil
}

// possible reports whether a worker whose previous tally was last can have reached t since: its
// epoch exists, the new samples and bytes fit into an epoch, and no time exceeds a year.
func (s *epochs) possible(t, last door.Tally) bool {
	if checkEpoch(t.Epoch) != nil || !s.countable(int(t.Epoch)) ||
		max(t.Counts[stats.StallSeconds], t.Counts[stats.TrainSeconds]) > maxTalliedMicroseconds {
		return false
	}
	more := t.Counts
	if !t.Fell(last) {
		more = more.Minus(last.Counts)
	}
	spec, read := s.of.coordinator.Spec(), more[stats.EvaluatedReads]
	return max(more.Draws(), more[stats.Evaluated]) <=
		int64(spec.Draws(s.of.data.Samples))*int64(s.of.data.Widest()) &&
		more[stats.SubstituteReads] <= more[stats.StorageReads]+more[stats.FallbackReads] &&
		read <= more[stats.Evaluated] &&
		s.fits(more[stats.StorageReads]+read, more[stats.StorageBytes]) &&
		s.fits(more[stats.FallbackReads]+read, more[stats.FallbackBytes])
}

// countable reports whether an epoch can have been trained: it was planned here, or before this
// rank was restarted.
func (s *epochs) countable(epoch int) bool {
	if opened := s.of.coordinator.Open(); len(opened) > 0 {
		return epoch <= slices.Max(opened)
	}
	return s.open[epoch] != nil || len(s.open) < MaxToldEpochs
}

// fits reports whether n samples can have size bytes.
func (s *epochs) fits(n, size int64) bool {
	high, low := bits.Mul64(uint64(n), uint64(s.of.set.largest))
	return high > 0 || uint64(size) <= low
}

func (s *epochs) checkMetric(m door.Metric) error {
	switch {
	case len(m.Name) > maxName:
		return door.Broken("METRIC with a name of %d bytes, where %d are the most", len(m.Name), maxName)
	case s.open[int(m.Epoch)] != nil && len(s.open[int(m.Epoch)].metrics) >= maxMetrics:
		return door.Broken("METRIC, where epoch %d has %d", m.Epoch, maxMetrics)
	}
	return checkEpoch(m.Epoch)
}
