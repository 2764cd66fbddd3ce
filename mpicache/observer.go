package mpicache

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"rankpool/mpicache/message"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/training"
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
	node     *Node
	host     string
	observed time.Time // last, by tick
	logged   time.Time // last, by tick

	mu    sync.Mutex
	heard []heardStats // by rank; rank 0 has all, the others only their own
}

type heardStats struct {
	reading stats.Reading
	at      time.Time // zero: never
}

// init measures this rank once, so that STATUS has an answer from the start. It sends nothing:
// nothing can be sent yet.
func (o *observer) init(n *Node) {
	o.node = n
	o.host, _ = os.Hostname() // "" where it has none
	o.logged = n.Now()
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
	o.node.cfg.Transport.Post(0, append([]byte{message.Stats, 0, 0}, message.JSON(measured)...))
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
	o.take(from, measured, o.node.Now())
}

// ranks returns the recent measurements, by rank.
func (o *observer) ranks(now time.Time) []stats.Reading {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []stats.Reading
	for _, h := range o.heard {
		if now.Sub(h.at) < silentRank {
			all = append(all, h.reading)
		}
	}
	return all
}

// record writes a line per rank to the run log.
func (o *observer) record(now time.Time) {
	if o.node.cfg.NodeEvery <= 0 {
		return
	}
	for _, reading := range o.ranks(now) {
		reading.Event, reading.Time = "node", now.UTC()
		o.node.cfg.Record(reading)
	}
}

// Stats measures this rank at this moment.
func (n *Node) Stats() stats.Reading {
	st := stats.Reading{
		Rank: n.cfg.Transport.Rank(), Host: n.observer.host,
		Seconds: n.Now().Sub(n.rank.Started).Seconds(), Trainers: n.clients.Trainers(),
		Progress: stats.Progress{Epoch: -1}, Ready: 1,
	}
	st.SlabBytes, st.UsedBytes = n.memory.Size()
	var sum stats.Counts
	all := n.rank.All()
	for _, s := range all {
		s.Measure(&st, &sum)
	}
	named := slices.ContainsFunc(all, func(s *training.Training) bool {
		return s.Key().Job != ""
	})
	measured := slices.ContainsFunc(st.Jobs, func(j stats.Job) bool { return j.BatchSeconds > 0 })
	if !named && !measured {
		st.Jobs = nil
	}
	for _, s := range n.rank.Sets {
		s.Measure(&st, &sum)
	}
	st.Sums = stats.Convert(sum)
	st.Kept, st.KeptOf = int64(n.kept), int64(n.keptOf)
	st.Sums[stats.PeerBytes] = float64(n.peers.Bytes())
	if n.cfg.Observe != nil {
		st.Machine = n.cfg.Observe(st.Sums[stats.StallSeconds], st.Trainers)
	}
	return st
}
