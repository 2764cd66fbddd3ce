package systems

import (
	"fmt"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

// quiver serves the jobs of one data set from two chunks of it. A job looks ahead in its
// permutation for samples in memory; if it finds too few, it uses other samples of the chunk that
// it works on.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §4.7, §5, Algorithm 1. Differs: a served sample
// that the same batch drew answers its own draw, so it counts as exact; the order inside a global
// batch does not change the step. All jobs share one data set, so jobs beyond the first are §5.4's
// multi-job. A sample lies on the rank that reads it, not where consistent hashing puts it (§4.4).
type quiver struct {
	quiverBuffer
	cfg       PoolConfig
	ahead     int     // how many times the batch is looked up
	benefit   float64 // least t_m/t_h of a job that is cached for
	seat      []int32 // by sample: 1 + its place in the batch under way
	picked    []int32 // draws that the batch under way uses
	here      []bool  // by place in picked: the draw's sample was in memory then
	order     []int32 // by place in the batch: its draw's place in picked, -1 until it has one
	displaced []int32 // places in picked of samples that the batch did not draw
}

func newQuiver(cfg PoolConfig) Pool {
	q := &quiver{cfg: cfg, ahead: int(cfg.Value("lookup")), benefit: cfg.Value("benefit")}
	q.quiverBuffer = newQuiverBuffer(&cfg)
	q.seat = make([]int32, cfg.Samples)
	return q
}

// Begin implements Pool. The manager weighs the jobs again whenever one begins an epoch. A job that
// does not profit reads what it draws from storage until its epoch ends.
func (q *quiver) Begin(job, epoch int, ids []draw.SampleID) {
	j := &q.jobs[job]
	j.begin(epoch, ids, &q.quiverChunks)
	q.weigh()
	j.on = q.mode != quiverNone && q.profits(job)
}

// Trained implements Pool.
func (q *quiver) Trained(*Batch, protocol.Report) {}

// Batch implements Pool.
func (q *quiver) Batch(b *Batch, answers []Answer) {
	j := &q.jobs[b.Job]
	if len(b.IDs) > j.unused {
		panic(fmt.Sprintf("systems: quiver was asked for %d draws of job %d, its epoch has %d left.",
			len(b.IDs), b.Job, j.unused))
	}
	if !j.on {
		j.unused -= len(b.IDs)
		for i, id := range b.IDs {
			answers[i] = Answer{Served: id, Read: true}
		}
		return
	}
	q.getBatch(j, len(b.IDs))
	q.answer(j, b, answers)
	for j.unused > 0 && j.rest[j.chunk] == 0 {
		q.move(j)
	}
	if j.unused == 0 && j.epoch+1 == q.cfg.Epochs {
		q.move(j)
		j.chunk, j.on = -1, false
	}
	q.advance(len(b.IDs))
}

// getBatch picks size draws of a job.
//
// Source: Algorithm 1. Differs: in the paper a job asks for the current chunk (line 16) and tells
// the servers that it works on it (line 22) at its first miss, and reports it used up (line 25)
// only if a miss finds nothing left in it. Here a job works on a chunk from its first batch until
// nothing is left, as in §5.1. After an epoch it stays on its chunk, all of which it can use again.
func (q *quiver) getBatch(j *quiverJob, size int) {
	if j.chunk < 0 {
		j.chunk = q.current()
	}
	q.picked, q.here = j.lookup(q.ahead*size, size, q.serves, q.picked[:0]), q.here[:0]
	for range q.picked {
		q.here = append(q.here, true)
	}
	for {
		q.picked = j.take(size, q.picked)
		for _, draw := range q.picked[len(q.here):] {
			q.here = append(q.here, q.memory.Has(j.ids[draw]))
		}
		if len(q.picked) == size {
			return
		}
		q.move(j)
	}
}

// answer serves the picked draws. It reads those that are not in memory, and keeps those of a
// cached chunk.
func (q *quiver) answer(j *quiverJob, b *Batch, answers []Answer) {
	for i, id := range b.IDs {
		q.seat[id] = int32(i) + 1
	}
	q.order, q.displaced = append(q.order[:0], b.Rank...), q.displaced[:0]
	for i := range q.order {
		q.order[i] = -1
	}
	for n, draw := range q.picked {
		if seat := &q.seat[j.ids[draw]]; *seat > 0 {
			q.order[*seat-1], *seat = int32(n), 0
		} else {
			q.displaced = append(q.displaced, int32(n))
		}
	}
	for i, id := range b.IDs {
		q.seat[id] = 0
		n := q.order[i]
		if n < 0 {
			n, q.displaced = q.displaced[0], q.displaced[1:]
		}
		served := j.ids[q.picked[n]]
		answers[i] = Answer{Served: served, Read: !q.here[n] && !q.memory.Has(served)}
		if answers[i].Read {
			q.keep(served, b.Rank[i])
		}
	}
}

var quiverSystem = System{
	Name: "quiver", Sampler: "torch", Policy: "quiver", NewPool: newQuiver, Live: liveServed,
	About: "two chunks of the data set in memory; serves what is there in place of what was " +
		"drawn; jobs share what each reads",
	Source: "Kumar and Sivathanu, \"Quiver\", FAST 2020",
	Options: []Option{
		{
			Name: "chunks", Default: 10, Least: 2, Most: 1e+06, Whole: true,
			About:  "chunks of the data set, at least 2; more when two do not fit into memory",
			Source: "§5.1",
		},
		{
			Name: "lookup", Default: 10, Least: 1, Most: 1e+06, Whole: true,
			About: "draws that are looked up for a batch, in batches, at least 1", Source: "§4.7",
		},
		{
			Name: "patience", Default: 100, Least: 0, Most: 1e+09, Whole: true,
			About: "batches of each job, at least 0, from the first job's end on a chunk to its " +
				"forced eviction",
			Source: "§5.1 has no number; as long as a probing phase (§5.3)",
		},
		{
			Name: "packed", Default: 0, Least: 0, Most: 1, Whole: true,
			About: "1: a chunk lies in storage as one piece, of which a rank reads its part for " +
				"a batch at once; 0: a sample is a read",
			Source: "§5.2: clients read a random subset of the items; §5.1: a chunk's stripe " +
				"units are spread over the data set",
		},
		{
			Name: "benefit", Default: 1, Least: 0, Most: 1e+09,
			About:  "least t_miss/t_hit of a job that is cached for; 1: every job",
			Source: "§5.3 has no number; a single data set leaves the memory to nobody else",
		},
	},
}
