package mpicache

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// epochCount holds the counts of the trainers here in an epoch. Trainers count themselves, so that
// a rank that dies loses nothing.
type epochCount struct {
	tallies map[teller]door.Tally // running sums: only the newest counts
	before  map[teller]door.Tally // what each had counted before this rank began
	metrics map[string]float64
}

// A teller is a sender of tallies: a training process, or one of its workers.
type teller struct {
	trainer uint32
	worker  uint64
}

// count returns the epoch's count.
func (s *stream) count(epoch int) *epochCount {
	e := s.epochs[epoch]
	if e == nil {
		e = &epochCount{
			tallies: map[teller]door.Tally{}, before: map[teller]door.Tally{},
			metrics: map[string]float64{},
		}
		s.epochs[epoch] = e
	}
	return e
}

// onTally records a worker's running totals. Totals from a worker that has not yet asked this rank
// for anything were accumulated under its predecessor. Impossible totals are ignored: a wrong count
// harms no training.
func (s *stream) onTally(from teller, t door.Tally, asked bool) {
	if t.Counts == (stats.Counts{}) {
		return
	}
	s.locked(func() {
		if s.closedEpochs[int(t.Epoch)] {
			return
		}
		var last door.Tally
		known := false
		if e := s.epochs[int(t.Epoch)]; e != nil {
			last, known = e.tallies[from]
		}
		if !s.possible(t, last) {
			s.node.cfg.Log.Warn("impossible tally ignored", "data", s.data.Name,
				"trainer", from.trainer, "epoch", t.Epoch)
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

// onMetric records a value of an epoch that is being trained.
func (s *stream) onMetric(m door.Metric) (err error) {
	s.locked(func() {
		if err = s.checkMetric(m); err == nil && s.countable(int(m.Epoch)) {
			s.count(int(m.Epoch)).metrics[m.Name] = m.Value
		}
	})
	return err
}

func (s *stream) sum(epoch int) *stats.Count {
	e := s.epochs[epoch]
	var counts stats.Counts
	longest := int64(0)
	for _, t := range e.tallies {
		counts.Add(t.Counts)
		longest = max(longest, t.Counts[stats.TrainSeconds])
	}
	counts[stats.StorageBytes] += counts[stats.FallbackBytes]
	counts[stats.TrainSeconds] = longest
	if s.began {
		counts[stats.PlannedHits] = int64(s.stager.PlannedHits(s.lane, epoch))
		counts.Add(s.stagerCounts(epoch))
	}
	c := &stats.Count{Epoch: epoch, Metrics: e.metrics}
	c.Set(stats.Convert(counts))
	if s.began {
		c.Benefit = s.measured(epoch)
	}
	if spec := s.coordinator.Spec(); spec != nil {
		c.StallSeconds /= stats.Measured(spec.World)
	}
	return c
}

// stagerCounts returns what the stager counts of an epoch, of this rank and not of its trainers.
func (s *stream) stagerCounts(epoch int) (counts stats.Counts) {
	packages := s.stager.Packages(s.lane, epoch)
	counts[stats.TierHits] = int64(s.stager.TierHits(s.lane, epoch))
	counts[stats.PackageReads] = int64(packages.Reads)
	counts[stats.PackageReadBytes] = packages.ReadBytes
	counts[stats.PackageWrites] = int64(packages.Writes)
	counts[stats.PackageWriteBytes] = packages.WriteBytes
	return counts
}

// lingerAfterMove is how long an epoch that every trainer here has left is kept open for messages
// that are still in flight.
const lingerAfterMove = 300 * time.Millisecond

// noteMoved records the epochs that all trainers here have left.
func (s *stream) noteMoved() {
	used := map[int]bool{}
	for _, t := range s.coordinator.Locals() {
		epoch, ok := s.coordinator.In(t)
		if !ok {
			return
		}
		used[epoch] = true
	}
	for e := range s.epochs {
		if _, noted := s.moved[e]; !used[e] && !noted {
			s.moved[e] = s.node.now()
		}
	}
}

func (s *stream) closeEpochs(now time.Time) {
	for _, e := range slices.Sorted(maps.Keys(s.moved)) {
		if now.Sub(s.moved[e]) > lingerAfterMove {
			s.closeEpoch(e)
		}
	}
}

// closeEpoch sends the epoch's count to rank 0.
func (s *stream) closeEpoch(epoch int) {
	delete(s.moved, epoch)
	if s.epochs[epoch] == nil {
		return
	}
	s.addEpoch(&s.past, epoch)
	c := s.sum(epoch)
	delete(s.epochs, epoch)
	s.closedEpochs[epoch] = true
	if r := s.node.report; r != nil {
		expected := slices.Clone(s.coordinator.World())
		s.later(func() { r.add(s.node.cfg.Transport.Rank(), s.key(), expected, c) })
		return
	}
	s.node.cfg.Transport.Post(0, append(s.message(messageCount), asJSON(c)...))
}

// finish closes all epochs and waits for the last state to be written.
func (s *stream) finish() {
	saving := s.finishing()
	s.recording.Wait()
	if saving != nil {
		<-saving
	}
}

// finishing closes all epochs. The channel that it returns is closed when the last state is
// written; nil: there is none.
func (s *stream) finishing() (saving chan struct{}) {
	s.locked(func() {
		s.flushReports()
		for _, e := range slices.Sorted(maps.Keys(s.epochs)) {
			s.closeEpoch(e)
		}
		s.coordinate(protocol.Finished{})
		saving = s.saving
	})
	return saving
}

// reporter gathers the counts of all ranks on rank 0 and records an epoch when all ranks with
// trainers have sent theirs.
type reporter struct {
	node *Node

	mu       sync.Mutex
	open     map[countKey]gathered
	recorded map[string]map[int]stats.Count // by stream and epoch
	byes     int
	all      chan struct{} // closed when every rank has sent its bye
}

type countKey struct {
	stream streamKey
	epoch  int
}

// streamKey names a training on a data set; its text is part of the names of files.
type streamKey struct {
	set int
	job string
}

func (s *stream) key() streamKey { return streamKey{s.index, s.job} }

func (k streamKey) String() string {
	if k.job == "" {
		return strconv.Itoa(k.set)
	}
	return fmt.Sprintf("%d@%s", k.set, k.job)
}

func (k countKey) compare(l countKey) int {
	return cmp.Or(cmp.Compare(k.stream.set, l.stream.set), cmp.Compare(k.stream.job, l.stream.job),
		cmp.Compare(k.epoch, l.epoch))
}

// gathered holds what the ranks have sent about an epoch: their newest counts, which are running
// totals.
type gathered map[int]*stats.Count

func newReporter(n *Node) *reporter {
	r := &reporter{node: n, open: map[countKey]gathered{}, all: make(chan struct{})}
	if text, err := ReadFile(r.recordedPath()); err == nil {
		_ = json.Unmarshal(text, &r.recorded) // a rank that died while writing leaves the previous file
	}
	if r.recorded == nil {
		r.recorded = map[string]map[int]stats.Count{}
	}
	return r
}

// recordedPath returns the file of the recorded epochs, which outlives this rank.
func (r *reporter) recordedPath() string { return filepath.Join(r.node.cfg.Dir, "recorded") }

func (r *reporter) onCount(from int, s *stream, text []byte) {
	var c stats.Count
	if err := json.Unmarshal(text, &c); err != nil {
		r.node.cfg.Log.Error("malformed count", "from", from, "error", err)
		return
	}
	s.mu.Lock()
	expected := slices.Clone(s.coordinator.World())
	s.mu.Unlock()
	r.add(from, s.key(), expected, &c)
}

// add adds a rank's count of an epoch, and records the epoch when the last of the expected ranks,
// those with trainers, has sent its count.
func (r *reporter) add(from int, stream streamKey, expected []int32, c *stats.Count) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := countKey{stream, c.Epoch}
	g := r.open[key]
	if g == nil {
		g = gathered{}
		r.open[key] = g
	}
	g[from] = c
	for _, rank := range expected {
		if g[int(rank)] == nil {
			return
		}
	}
	// otherwise the data set was not opened since a restart: finish knows when all ranks have sent
	// their counts
	if len(expected) > 0 {
		r.record(key, g)
	}
}

// beginRecord is the first line that rank 0 writes to the run log.
type beginRecord struct {
	Event  string    `json:"event"`
	Time   time.Time `json:"time"`
	Launch string    `json:"launch"`
	Ranks  int       `json:"ranks"`
	Data   []string  `json:"data"` // the first is trained on
}

// recordBegin writes the line on rank 0 if the start of the training has a name; without one the
// line would not help readers.
func (n *Node) recordBegin() {
	if n.report == nil || n.cfg.Launch == "" || n.cfg.Record == nil {
		return
	}
	rec := beginRecord{
		Event: "begin", Time: time.Now().UTC(), Launch: n.cfg.Launch,
		Ranks: n.cfg.Transport.Size(),
	}
	for i := range n.cfg.Data {
		rec.Data = append(rec.Data, n.cfg.Data[i].Name)
	}
	n.cfg.Record(rec)
}

// epochRecord is a line of the run log.
type epochRecord struct {
	Event string `json:"event"`
	Data  string `json:"data"`
	Job   string `json:"job,omitempty"`
	Draws int64  `json:"draws"`
	stats.Count
}

// record writes the epoch's line: event epoch for the first data set, pass for the others, and job
// for a training with a job name. After a restart trainers resend the counts of their last epochs:
// an epoch is not recorded a second time, unless draws were missing. An epoch without draws is not
// recorded.
func (r *reporter) record(key countKey, g gathered) {
	delete(r.open, key)
	name := key.stream.String()
	sum := stats.Count{Epoch: key.epoch}
	for _, c := range g {
		sum.Add(c)
	}
	if before := r.recorded[name][key.epoch]; sum.Draws() <= before.Draws() {
		return
	}
	event := "epoch"
	switch {
	case key.stream.job != "":
		event = "job"
	case key.stream.set > 0:
		event = "pass"
	}
	r.node.cfg.Record(epochRecord{
		event, r.node.cfg.Data[key.stream.set].Name, key.stream.job, sum.Draws(), sum,
	})
	if r.recorded[name] == nil {
		r.recorded[name] = map[int]stats.Count{}
	}
	r.recorded[name][key.epoch] = sum
	text, err := json.Marshal(r.recorded)
	if err == nil {
		err = writeFile(r.recordedPath(), inOne(text))
	}
	if err != nil {
		r.node.cfg.Log.Warn("the counts of the epochs are not kept", "error", err)
	}
}

// total returns the sum over the epochs of all trainings on a data set; its Epoch is the number of
// epochs.
func (r *reporter) total(set int) stats.Count {
	var total stats.Count
	seconds, epochs := 0.0, 0
	for name, recorded := range r.recorded {
		if of, _, _ := strings.Cut(name, "@"); of != strconv.Itoa(set) {
			continue
		}
		for _, c := range recorded {
			total.Add(&c)
			seconds += c.Seconds
		}
		epochs += len(recorded)
	}
	total.Epoch, total.Seconds, total.Metrics = epochs, seconds, nil
	total.Benefit = stats.Benefit{} // benefits of different times and trainings do not add up
	return total
}

func (r *reporter) bye() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byes++; r.byes == r.node.cfg.Transport.Size()-1 {
		close(r.all)
	}
}

// finish waits for the other ranks' counts, at most timeout, and records what has arrived and the
// summary.
func (r *reporter) finish(timeout time.Duration) {
	if r.node.cfg.Transport.Size() > 1 {
		select {
		case <-r.all:
		case <-time.After(timeout):
			r.node.cfg.Log.Warn("not every rank has sent its counts")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(r.open), countKey.compare) {
		r.record(key, r.open[key])
	}
	r.node.observer.record(r.node.now())
	type summary struct {
		Event string `json:"event"`
		stats.Summary
	}
	t := r.total(0)
	r.node.cfg.Record(summary{"summary", stats.Summary{
		Data: r.node.cfg.Data[0].Name, Ranks: r.node.cfg.Transport.Size(), Epochs: t.Epoch,
		Draws: t.Draws(), WallSeconds: r.node.now().Sub(r.node.started).Seconds(), Count: t,
	}})
}

// status describes the node at this moment.
func (n *Node) status() door.Status {
	st := door.Status{Rank: n.cfg.Transport.Rank(), Ranks: n.cfg.Transport.Size()}
	for _, s := range n.all() {
		st.Data = append(st.Data, s.status())
	}
	st.Nodes = n.observer.ranks(n.now())
	return st
}

func (s *stream) status() door.DataStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := door.DataStatus{Name: s.data.Name, Job: s.job, Epoch: -1, NextChunk: -1}
	for _, e := range s.coordinator.Open() {
		if c := s.epochs[e]; c != nil {
			sum := s.sum(e)
			plan := s.stager.Plan(s.lane, e)
			st.Epoch, st.Draws, st.Hits = e, sum.Draws(), sum.HitsLocal+sum.HitsRemote
			if plan != nil {
				st.Batch, st.Batches = s.slowest(plan, c), plan.Batches()
				if cfg := s.setup.sampler; cfg.Name == "chunks" {
					st.NextChunk = draw.NextChunk(cfg, e, st.Batch, st.Batches)
				}
			}
		}
	}
	return st
}

// slowest returns how many of the plan's batches the slowest trainer here has been given; the last
// batch may be smaller.
func (s *stream) slowest(plan *plan.Plan, c *epochCount) int {
	draws := map[int]int{}
	for from, t := range c.tallies {
		draws[int(from.trainer)] += int(t.Counts.Draws())
	}
	locals := s.coordinator.Locals()
	if len(locals) == 0 {
		return 0
	}
	least, last := plan.Batches(), plan.Batches()-1
	for _, trainer := range locals {
		batch := s.coordinator.Spec().BatchSize
		batches := (draws[trainer] + batch - 1) / batch
		if batches == last && plan.PartLen(last, trainer) == 0 {
			batches++ // the last one has nothing for it
		}
		least = min(least, batches)
	}
	return least
}
