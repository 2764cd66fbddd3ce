// Package runlogtest makes run logs of invented trainings, for tests and measurements.
package runlogtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"rankpool/mpicache/stats"
)

// A Training describes what is logged. Each node has a slab of 64 GiB; the first epoch reads
// storage, in the others 0.62 of the draws are hits.
type Training struct {
	Nodes        int
	Epochs       int
	EpochSeconds float64 // of the second and later epochs; the first takes 1.6 times as long
	EverySeconds float64 // between two lines of a node
	GPUs         int     // of a node; 0: none are known
	Machine      bool    // whether ranks measure storage and memory
	Seed         uint64  // also names the launch

	SlowNode   int // its storage takes three times as long; -1: none
	ShrinkNode int // gives back a quarter of its slab in the middle; -1: none
	DeadNode   int // dies in the middle of epoch 2 and is restarted; -1: none
}

// Cluster returns a training of a realistic size: 8 nodes with 4 GPUs each, 6 epochs, 65 minutes,
// and all of the troubles.
func Cluster() Training {
	return Training{
		Nodes: 8, Epochs: 6, EpochSeconds: 600, EverySeconds: 10, GPUs: 4, Machine: true, Seed: 1,
		SlowNode: 3, ShrinkNode: 5, DeadNode: 2,
	}
}

// begin is the time at which the training began.
var begin = time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)

const (
	sampleBytes    = 110 << 10 // a mean file of ImageNet
	samplesASecond = 2400.0    // of a node
	gibibyte       = 1 << 30
)

// Write writes the log, which is the same for the same Training.
func (t Training) Write(w io.Writer) error {
	out := &writer{
		Training: t, to: bufio.NewWriterSize(w, 1<<20), random: rand.New(rand.NewPCG(t.Seed, 0)),
	}
	for n := range t.Nodes {
		out.nodes = append(out.nodes, &node{rank: n, slab: 64 * gibibyte})
	}
	out.line(struct {
		Event  string    `json:"event"`
		Time   time.Time `json:"time"`
		Launch string    `json:"launch"`
		Ranks  int       `json:"ranks"`
		Data   []string  `json:"data"`
	}{"begin", begin, fmt.Sprintf("20260314T092653Z-%08x", t.Seed), t.Nodes, []string{"train"}})
	second := 0.0
	for e := range t.Epochs {
		length := t.EpochSeconds
		if e == 0 {
			length *= 1.6
		}
		out.epoch(e, second, length)
		second += length
	}
	out.total.Event, out.total.Data, out.total.Metrics = "summary", "train", nil
	out.line(stats.Summary{
		Epoch: out.total, Whole: stats.Whole{Ranks: t.Nodes, Epochs: t.Epochs, WallSeconds: second},
	})
	if out.err == nil {
		out.err = out.to.Flush()
	}
	return out.err
}

// Text returns the log as Write writes it.
func (t Training) Text() string {
	var log strings.Builder
	if err := t.Write(&log); err != nil {
		panic(err) // a strings.Builder accepts everything
	}
	return log.String()
}

type writer struct {
	Training
	to     *bufio.Writer
	random *rand.Rand
	nodes  []*node
	total  stats.Epoch
	err    error
}

type node struct {
	stats.Reading
	rank   int
	began  float64
	slab   int64
	latest float64
}

func (w *writer) line(event any) {
	text, err := json.Marshal(event)
	if err == nil {
		_, err = w.to.Write(append(text, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
}

// epoch writes the lines of an epoch that begins at a second.
func (w *writer) epoch(e int, second, length float64) {
	sum := stats.Epoch{Event: "epoch", Data: "train", Epoch: e}
	for at := second + w.EverySeconds; at <= second+length; at += w.EverySeconds {
		for _, n := range w.nodes {
			died := e == 2 && n.rank == w.DeadNode && at-second >= length/2 && n.began == 0
			if died {
				*n = node{
					rank: n.rank, slab: n.slab, began: at - w.EverySeconds/2, latest: at - w.EverySeconds/2,
				}
			}
			w.advance(n, &sum, e, (at-second)/length, at, died)
			n.Event, n.Time = "node", begin.Add(time.Duration(at*1e9))
			w.line(n.Reading)
		}
	}
	sum.Sums[stats.TrainSeconds] = length
	sum.Sums[stats.StallSeconds] /= float64(w.Nodes)
	sum.Sums[stats.PlannedHits] = sum.Hits()
	sum.Metrics = map[string]float64{"accuracy": 1 - 0.6/math.Sqrt(float64(e+1))}
	w.total.Merge(&sum)
	w.line(sum)
	w.importance(e)
}

// advance lets a node train until second at, when it has done the given part of the epoch.
func (w *writer) advance(n *node, sum *stats.Epoch, epoch int, part, at float64, died bool) {
	seconds := at - n.latest
	hit, latency := 0.62, 0.004*(1+0.3*w.random.Float64())
	if epoch == 0 {
		hit = 0.1 * part
	}
	if n.rank == w.SlowNode {
		latency *= 3
	}
	stall := seconds * min(0.9, (1-hit)*latency*22)
	samples := (seconds - stall) * samplesASecond * (0.97 + 0.06*w.random.Float64())
	hits := int64(samples * hit)
	local := hits / int64(w.Nodes)
	reads := int64(samples) - hits
	fallback := int64(0)
	if died || epoch == 2 && w.DeadNode >= 0 && part > 0.5 && part < 0.56 {
		fallback, hits = hits-local, local
	}
	n.Rank, n.Host, n.Seconds = n.rank, fmt.Sprintf("nid%06d", 1000+n.rank), at-n.began
	n.Trainers, n.Data, n.Epoch, n.Batches = max(1, w.GPUs), "train", epoch, 5000
	n.Batch = int(5000 * part)
	given := stats.Sums{
		stats.HitsLocal: float64(local), stats.HitsRemote: float64(hits - local),
		stats.StorageReads: float64(reads), stats.FallbackReads: float64(fallback),
		stats.StorageBytes:  float64((reads + fallback) * sampleBytes),
		stats.FallbackBytes: float64(fallback * sampleBytes),
		stats.StallSeconds:  stall,
	}
	sum.Add(given)
	given[stats.StallSeconds] *= float64(n.Trainers)
	given[stats.TrainSeconds] = seconds * float64(n.Trainers)
	given[stats.PeerBytes] = float64((hits - local) * sampleBytes)
	n.Add(given)
	w.memory(n, epoch, part)
	if w.Machine {
		w.machine(n, reads, latency, seconds, stall)
	}
	n.latest = at
}

func (w *writer) memory(n *node, epoch int, part float64) {
	if n.rank == w.ShrinkNode && epoch == w.Epochs/2 && part > 0.5 {
		n.slab = 48 * gibibyte
	}
	full := 1.0
	if epoch == 0 {
		full = part
	}
	n.SlabBytes = n.slab
	n.ResidentBytes = int64(0.85 * full * float64(n.slab))
	n.UsedBytes = n.ResidentBytes + int64(0.1*float64(n.slab))
	n.Residents = n.ResidentBytes / sampleBytes
	n.Ready = min(1, 0.6+0.5*full)
}

func (w *writer) machine(n *node, reads int64, latency, seconds, stall float64) {
	m := &n.Machine
	m.StorageReads += reads
	m.StorageBytes += reads * sampleBytes
	m.StorageSeconds += float64(reads) * latency
	m.MemoryLimit, m.MemoryFreeBytes = "cgroup memory.max", 80*gibibyte-n.slab
	m.GPUs = m.GPUs[:min(len(m.GPUs), w.GPUs)]
	for len(m.GPUs) < w.GPUs {
		m.GPUs = append(m.GPUs, stats.GPU{
			UUID: fmt.Sprintf("GPU-%08x-%d", n.rank, len(m.GPUs)), Name: "NVIDIA H100", Index: len(m.GPUs),
		})
	}
	for i := range m.GPUs {
		g := &m.GPUs[i]
		idle := stall + 0.04*seconds*w.random.Float64()
		busy := max(0, 1-idle/seconds)
		g.Utilisation = &busy
		g.SampledSeconds += seconds
		g.IdleSeconds += idle
		g.WaitedSeconds += stats.Measured(stall)
	}
}

// importance writes a distribution that gets narrower, with a tail.
func (w *writer) importance(e int) {
	const classes, samples = 40, 1_281_167.0
	scale := 2.3 / math.Sqrt(float64(e+1))
	edges, counts := []float64{0}, []int64(nil)
	for k := range classes {
		high := 8.0 * float64(k+1) / classes
		mass := math.Exp(-edges[k]/scale) - math.Exp(-high/scale)
		edges, counts = append(edges, high), append(counts, int64(samples*mass))
	}
	w.line(map[string]any{
		"event": "importance", "time": begin, "data": "train", "epoch": e, "edges": edges,
		"counts": counts,
	})
}
