package training

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/message"
	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// epochCount holds the counts of the trainers here in an epoch. Trainers count themselves, so that
// a rank that dies loses nothing.
type epochCount struct {
	tallies map[Teller]door.Tally // running sums: only the newest counts
	before  map[Teller]door.Tally // what each had counted before this rank began
	metrics map[string]float64
}

// A Teller is a sender of tallies: a training process, or one of its workers.
type Teller struct {
	Trainer uint32
	Worker  uint64
}

// epochs is what the trainers here have counted of a training.
type epochs struct {
	of     *Training
	open   map[int]*epochCount
	closed map[int]bool      // whose counts have been sent
	moved  map[int]time.Time // when the last local trainer left it
	past   stats.Counts      // what closed ones have counted
	shown  door.DataStatus   // the newest progress reported
}

func newEpochs(of *Training) epochs {
	return epochs{
		of: of, open: map[int]*epochCount{}, closed: map[int]bool{}, moved: map[int]time.Time{},
	}
}

// count returns the epoch's count.
func (s *epochs) count(epoch int) *epochCount {
	e := s.open[epoch]
	if e == nil {
		e = &epochCount{
			tallies: map[Teller]door.Tally{}, before: map[Teller]door.Tally{},
			metrics: map[string]float64{},
		}
		s.open[epoch] = e
	}
	return e
}

// Tally records a worker's running totals. Totals from a worker that has not yet asked this rank
// for anything were accumulated under its predecessor. Impossible totals are ignored: a wrong count
// harms no training.
func (of *Training) Tally(from Teller, t door.Tally, asked bool) {
	if t.Counts == (stats.Counts{}) {
		return
	}
	s := &of.epochs
	of.store.Locked(func() {
		if s.closed[int(t.Epoch)] {
			return
		}
		var last door.Tally
		known := false
		if e := s.open[int(t.Epoch)]; e != nil {
			last, known = e.tallies[from]
		}
		if !s.possible(t, last) {
			s.of.rank.Log.Warn("impossible tally ignored", "data", s.of.data.Name,
				"trainer", from.Trainer, "epoch", t.Epoch)
			return
		}
		e := s.count(int(t.Epoch))
		if !known && !asked {
			before := t
			// most of them were made since that rank died
			before.Counts[stats.FallbackReads], before.Counts[stats.FallbackBytes] = 0, 0
			before.Counts[stats.Unmeasured] = 0 // it still does not measure
			e.before[from] = before
		} else if t.Fell(last) {
			delete(e.before, from) // it counts from 0 again
		}
		e.tallies[from] = t
		s.noteMoved() // a restarted cache may have missed it
	})
}

// accuracyMetric is the name of the metric that systems choose by.
const accuracyMetric = "accuracy"

// Metric records a value of an epoch that is being trained.
func (of *Training) Metric(c Client, m door.Metric) (err error) {
	s := &of.epochs
	s.of.store.Locked(func() {
		if err = s.checkMetric(m); err != nil {
			return
		}
		if m.To != door.ToPlans && s.countable(int(m.Epoch)) {
			s.count(int(m.Epoch)).metrics[m.Name] = m.Value
		}
		accuracy := float32(m.Value)
		plans := m.To != door.ToLog && m.Name == accuracyMetric && protocol.Reported(accuracy)
		if plans && of.sit(c, true) == nil {
			of.Coordinate(protocol.Measured{
				Rank: of.rank.Transport.Rank(), Trainer: int(c.ID().Trainer), Epoch: int(m.Epoch),
				Accuracy: accuracy,
			})
		}
	})
	return err
}

func (s *epochs) sum(epoch int) *stats.Epoch {
	e := s.open[epoch]
	var counts stats.Counts
	longest := int64(0)
	for _, t := range e.tallies {
		counts.Add(t.Counts)
		longest = max(longest, t.Counts[stats.TrainSeconds])
	}
	counts[stats.StorageBytes] += counts[stats.FallbackBytes]
	counts[stats.TrainSeconds] = longest
	if s.of.began {
		counts.Add(s.of.store.Counts(s.of.lane, epoch))
	}
	c := &stats.Epoch{Epoch: epoch, Sums: stats.Convert(counts), Metrics: e.metrics}
	if s.of.began {
		c.Benefit = s.of.Measured(epoch)
	}
	if spec := s.of.coordinator.Spec(); spec != nil {
		c.Sums[stats.StallSeconds] /= float64(spec.World)
	}
	return c
}

// lingerAfterMove is how long an epoch that every trainer here has left is kept open for messages
// that are still in flight.
const lingerAfterMove = 300 * time.Millisecond

// noteMoved records the epochs that all trainers here have left.
func (s *epochs) noteMoved() {
	used := map[int]bool{}
	for _, t := range s.of.coordinator.Locals() {
		epoch, ok := s.of.coordinator.In(t)
		if !ok {
			return
		}
		used[epoch] = true
	}
	for e := range s.open {
		if _, noted := s.moved[e]; !used[e] && !noted {
			s.moved[e] = s.of.rank.Now()
		}
	}
}

func (s *epochs) closeLeft(now time.Time) {
	for _, e := range slices.Sorted(maps.Keys(s.moved)) {
		if now.Sub(s.moved[e]) > lingerAfterMove {
			s.close(e)
		}
	}
}

// close sends the epoch's count to rank 0.
func (s *epochs) close(epoch int) {
	delete(s.moved, epoch)
	if s.open[epoch] == nil {
		return
	}
	s.add(&s.past, epoch)
	c := s.sum(epoch)
	delete(s.open, epoch)
	s.closed[epoch] = true
	if counted := s.of.rank.Counted; counted != nil {
		ranks := slices.Clone(s.of.coordinator.World())
		s.of.store.Later(func() { counted(s.of.rank.Transport.Rank(), s.of.Key(), ranks, c) })
		return
	}
	s.of.rank.Transport.Post(0, append(s.of.About().Begin(message.Count), message.JSON(c)...))
}

// closeAll closes all epochs.
func (s *epochs) closeAll() {
	for _, e := range slices.Sorted(maps.Keys(s.open)) {
		s.close(e)
	}
}

// receive passes on another rank's counts of an epoch, on rank 0.
func (s *epochs) receive(from int, text []byte) {
	var c stats.Epoch
	if err := json.Unmarshal(text, &c); err != nil {
		s.of.rank.Log.Error("malformed count", "from", from, "error", err)
		return
	}
	var ranks []int32
	s.of.store.Locked(func() { ranks = slices.Clone(s.of.coordinator.World()) })
	s.of.rank.Counted(from, s.of.Key(), ranks, &c)
}

// total returns the counts of all epochs.
func (s *epochs) total() stats.Counts {
	sum := s.past
	for e := range s.open {
		s.add(&sum, e)
	}
	return sum
}

// status returns the progress of the newest epoch.
func (s *epochs) status() door.DataStatus {
	st := door.DataStatus{Name: s.of.data.Name, Job: s.of.job, Epoch: -1, NextChunk: -1}
	for _, e := range s.of.coordinator.Open() {
		if c := s.open[e]; c != nil {
			sum := s.sum(e)
			plan := s.of.store.Plan(s.of.lane, e)
			st.Epoch, st.Draws, st.Hits = e, int64(sum.Draws()), int64(sum.Hits())
			if plan != nil {
				st.Batch, st.Batches = s.slowest(plan, c), plan.Batches()
				if cfg := s.of.setup.sampler; cfg.Name == "chunks" {
					st.NextChunk = draw.NextChunk(cfg, e, st.Batch, st.Batches)
				}
			}
		}
	}
	return st
}

// slowest returns how many of the plan's batches the slowest trainer here has been given; the last
// batch may be smaller.
func (s *epochs) slowest(plan *plan.Plan, c *epochCount) int {
	draws := map[int]int{}
	for from, t := range c.tallies {
		draws[int(from.Trainer)] += int(t.Counts.Draws())
	}
	locals := s.of.coordinator.Locals()
	if len(locals) == 0 {
		return 0
	}
	if s.of.coordinator.Spec().Listed() { // by the share of what all local trainers have drawn
		sum := 0
		for _, n := range draws {
			sum += n
		}
		return plan.BatchOf(sum * len(plan.World) / len(locals))
	}
	least, last := plan.Batches(), plan.Batches()-1
	for _, trainer := range locals {
		batch := s.of.coordinator.Spec().BatchSize
		batches := (draws[trainer] + batch - 1) / batch
		if batches == last && plan.PartLen(last, trainer) == 0 {
			batches++ // the last one has nothing for it
		}
		least = min(least, batches)
	}
	return least
}

// measure adds the training's state to st, and its totals to sum.
func (s *epochs) measure(st *stats.Reading, sum *stats.Counts) {
	progress, own := s.status(), s.total()
	sum.Add(own)
	if progress.Epoch >= 0 {
		s.shown = progress
	} else {
		progress = s.shown // between two epochs, or after the last
	}
	first := s.of.set.index == 0 && s.of.job == ""
	if progress.Name != "" && (first && progress.Epoch >= 0 || st.Epoch < 0) {
		st.Data, st.Epoch, st.Batch, st.Batches = progress.Name, progress.Epoch, progress.Batch,
			progress.Batches
	}
	if s.of.began {
		job := stats.Job{Name: s.of.job, Progress: stats.Progress{
			Data: s.of.data.Name, Epoch: -1, Batch: progress.Batch, Batches: progress.Batches,
			Sums: stats.Convert(own),
		}}
		if progress.Name != "" {
			job.Epoch = progress.Epoch
		}
		job.Benefit = s.of.Measured(-1)
		st.Jobs = append(st.Jobs, job)
	}
	if s.of.began && s.of.set.index == 0 && len(s.of.coordinator.Open()) > 0 {
		st.NextPlanned = st.NextPlanned ||
			s.of.store.Plan(s.of.lane, slices.Max(s.of.coordinator.Open())+1) != nil
	}
}

// add adds what the trainers here have counted in an epoch since this rank began.
func (s *epochs) add(sum *stats.Counts, epoch int) {
	e := s.open[epoch]
	longest := int64(0)
	for from, t := range e.tallies {
		counts := t.Counts.Minus(e.before[from].Counts)
		longest = max(longest, counts[stats.TrainSeconds])
		counts[stats.TrainSeconds] = 0
		sum.Add(counts)
	}
	sum[stats.TrainSeconds] += longest * int64(len(s.of.coordinator.Locals()))
	if s.of.began {
		sum.Add(s.of.store.Counts(s.of.lane, epoch))
	}
}
