package mpicache

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/mpicache/stats"
	"rankpool/scheduler/protocol"
)

const (
	observeEvery = time.Second
	// silentRank is how long a rank may be silent before rank 0 leaves it out of its answers.
	silentRank = 5 * time.Second
	// linesPerSecond bounds the lines about ranks in the run log: a line has about a kilobyte, and
	// 1,024 ranks with a line every ten seconds would write a gigabyte in three hours.
	linesPerSecond = 10
)

// observer measures this rank once a second. On rank 0 it also collects the other ranks'
// measurements, and writes them to the run log.
type observer struct {
	node      *Node
	host      string
	peerBytes atomic.Int64
	observed  time.Time // last, by tick
	logged    time.Time // last, by tick

	mu    sync.Mutex
	heard []heardStats // by rank; rank 0 has all, the others only their own
}

type heardStats struct {
	stats.Reading
	at time.Time // zero: never
}

// init measures this rank once, so that STATUS has an answer from the start. It sends nothing:
// nothing can be sent yet.
func (o *observer) init(n *Node) {
	o.node = n
	o.host, _ = os.Hostname() // "" where it has none
	o.logged = n.now()
	o.heard = make([]heardStats, n.cfg.Transport.Size())
	o.take(n.cfg.Transport.Rank(), n.Stats(), o.logged)
}

// tick measures this rank, and on rank 0 writes a line per rank to the run log, when it is time.
// Only the node's ticker calls it.
func (o *observer) tick(now time.Time) {
	if now.Sub(o.observed) < observeEvery {
		return
	}
	o.observed = now
	o.observe(now)
	every := max(o.node.cfg.NodeEvery, time.Duration(len(o.heard))*time.Second/linesPerSecond)
	if o.node.report != nil && now.Sub(o.logged) >= every-observeEvery/2 {
		o.logged = now
		o.record(now)
	}
}

// observe measures this rank and reports to rank 0.
func (o *observer) observe(now time.Time) {
	rank, measured := o.node.cfg.Transport.Rank(), o.node.Stats()
	o.take(rank, measured, now)
	if rank == 0 {
		return
	}
	o.node.cfg.Transport.Post(0, append([]byte{messageStats, 0, 0}, asJSON(measured)...))
}

func (o *observer) take(rank int, measured stats.Reading, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heard[rank] = heardStats{measured, now}
}

func (o *observer) onStats(from int, text []byte) {
	var measured stats.Reading
	if err := json.Unmarshal(text, &measured); err != nil {
		o.node.cfg.Log.Error("malformed statistics", "from", from, "error", err)
		return
	}
	o.take(from, measured, o.node.now())
}

// ranks returns the recent measurements, by rank.
func (o *observer) ranks(now time.Time) []stats.Reading {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []stats.Reading
	for _, h := range o.heard {
		if now.Sub(h.at) < silentRank {
			all = append(all, h.Reading)
		}
	}
	return all
}

// nodeRecord is a line of the run log.
type nodeRecord struct {
	Event string    `json:"event"`
	Time  time.Time `json:"time"`
	stats.Reading
}

// record writes a line per rank to the run log.
func (o *observer) record(now time.Time) {
	if o.node.cfg.NodeEvery <= 0 {
		return
	}
	for _, rank := range o.ranks(now) {
		o.node.cfg.Record(nodeRecord{"node", now.UTC(), rank})
	}
}

// Stats measures this rank at this moment.
func (n *Node) Stats() stats.Reading {
	st := stats.Reading{
		Rank: n.cfg.Transport.Rank(), Host: n.observer.host,
		Seconds: n.now().Sub(n.started).Seconds(), Trainers: n.trainers(),
		Progress: stats.Progress{Epoch: -1}, Ready: 1,
	}
	n.arenaMu.Lock()
	st.SlabBytes, st.UsedBytes = n.arena.SizeBytes(), n.arena.UsedBytes()
	n.arenaMu.Unlock()
	var sum stats.Counts
	all := n.all()
	for _, s := range all {
		s.addStats(&st, &sum)
	}
	named := slices.ContainsFunc(all, func(s *stream) bool { return s.job != "" })
	measured := slices.ContainsFunc(st.Jobs, func(j stats.Job) bool { return j.BatchSeconds > 0 })
	if !named && !measured {
		st.Jobs = nil
	}
	for _, s := range n.streams {
		s.addMemory(&st, &sum)
	}
	st.Set(stats.Convert(sum))
	st.Kept, st.KeptOf = int64(n.kept), int64(n.keptOf)
	st.PeerBytes = n.observer.peerBytes.Load()
	if n.cfg.Observe != nil {
		st.Machine = n.cfg.Observe(float64(st.StallSeconds), st.Trainers)
	}
	return st
}

// addStats adds the stream's state to st, and its totals to sum.
func (s *stream) addStats(st *stats.Reading, sum *stats.Counts) {
	progress := s.status()
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.past
	for epoch := range s.epochs {
		s.addEpoch(&own, epoch)
	}
	sum.Add(own)
	if progress.Epoch >= 0 {
		s.shown = progress
	} else {
		progress = s.shown // between two epochs, or after the last
	}
	if progress.Name != "" && (s.index == 0 && s.job == "" && progress.Epoch >= 0 || st.Epoch < 0) {
		st.Data, st.Epoch, st.Batch, st.Batches = progress.Name, progress.Epoch, progress.Batch,
			progress.Batches
	}
	if s.began {
		job := stats.Job{Name: s.job, Progress: stats.Progress{
			Data: s.data.Name, Epoch: -1, Batch: progress.Batch, Batches: progress.Batches,
		}}
		if progress.Name != "" {
			job.Epoch = progress.Epoch
		}
		job.Set(stats.Convert(own))
		job.Benefit = s.measured(-1)
		st.Jobs = append(st.Jobs, job)
	}
	if s.began && s.index == 0 && len(s.coordinator.Open()) > 0 {
		st.NextPlanned = st.NextPlanned ||
			s.stager.Knows(s.lane, slices.Max(s.coordinator.Open())+1)
	}
}

// addMemory adds what is in memory to st, and the counts of ended trainings to sum.
func (s *samples) addMemory(st *stats.Reading, sum *stats.Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum.Add(s.gone)
	if s.stager == nil {
		return
	}
	cache := s.stager.Cache()
	st.Residents += int64(cache.Len())
	st.ResidentBytes += cache.UsedBytes()
	if s.index == 0 {
		st.Ready = s.stager.Ready()
	}
}

// addEpoch adds what the trainers here have counted in an epoch since this rank began.
func (s *stream) addEpoch(sum *stats.Counts, epoch int) {
	e := s.epochs[epoch]
	longest := int64(0)
	for from, t := range e.tallies {
		counts := t.Counts.Minus(e.before[from].Counts)
		longest = max(longest, counts[stats.TrainSeconds])
		counts[stats.TrainSeconds] = 0
		sum.Add(counts)
	}
	sum[stats.TrainSeconds] += longest * int64(len(s.coordinator.Locals()))
	if s.began {
		sum.Add(s.stagerCounts(epoch))
	}
}

// importanceBins is the number of bars of an importance histogram in the run log.
const importanceBins = 40

// importanceRecord is a line of the run log: the distribution of the scores that an epoch was drawn
// by.
type importanceRecord struct {
	Event string    `json:"event"`
	Time  time.Time `json:"time"`
	Data  string    `json:"data"`
	Epoch int       `json:"epoch"`
	// one more than Counts: Counts[i] samples have scores in [Edges[i], Edges[i+1]); the last bin
	// includes its end
	Edges  []float64 `json:"edges"`
	Counts []int64   `json:"counts"`
	// see draw.Draws.Effective; 0: all samples have an equal share of the draws
	EffectiveSamples float64 `json:"effective_samples,omitempty"`
}

// leastEffective is the effective number of samples, as a share of all, below which rank 0 warns.
const leastEffective = 0.3

// recordImportance writes the distribution of the scores that an epoch's plan was made from, and
// warns once if few samples get most of the draws.
func (s *stream) recordImportance(train protocol.Train) {
	if s.job != "" || s.node.report == nil || len(train.Scores) == 0 || s.node.cfg.NodeEvery <= 0 {
		return
	}
	s.recording.Go(func() {
		rec := s.importance(train.Epoch, train.Scores)
		if train.Draws.Weighted() {
			rec.EffectiveSamples = train.Draws.Effective(len(train.Scores))
			if rec.EffectiveSamples < leastEffective*float64(len(train.Scores)) {
				s.warnFewSamples(&rec, len(train.Scores))
			}
		}
		s.node.cfg.Record(rec)
	})
}

func (s *stream) warnFewSamples(rec *importanceRecord, samples int) {
	s.fewSamples.Do(func() {
		s.node.cfg.Log.Warn("few samples get most of the draws: training may learn less than from "+
			"equal draws; the sampler pads draws more evenly, and so does --set floor=0.5",
			"data set", s.data.Name, "epoch", rec.Epoch, "effective samples",
			int64(rec.EffectiveSamples), "of", samples)
	})
}

func (s *stream) importance(epoch int, scores []float32) importanceRecord {
	low, high := slices.Min(scores), slices.Max(scores)
	rec := importanceRecord{
		Event: "importance", Time: time.Now().UTC(), Data: s.data.Name, Epoch: epoch,
		Edges: make([]float64, importanceBins+1), Counts: make([]int64, importanceBins),
	}
	width := (float64(high) - float64(low)) / importanceBins
	if width == 0 {
		// all are equal: they go into the first bin
		width = math.Max(math.Abs(float64(high)), 1) / importanceBins
	}
	for i := range rec.Edges {
		rec.Edges[i] = float64(low) + width*float64(i)
	}
	for _, v := range scores {
		rec.Counts[min(importanceBins-1, int((float64(v)-float64(low))/width))]++
	}
	return rec
}
