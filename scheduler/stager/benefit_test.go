package stager

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// timedJob is a training in virtual time on the stagers of some ranks with one trainer each: steps
// take a time, and all ranks together read storage at a rate, each read with a latency.
type timedJob struct {
	ranks, samples, batchSize int
	capacity                  float64 // of the samples, of all ranks
	sampler                   string
	step, read, latency       time.Duration
	measured                  bool
}

// timedRun is a timedJob under way.
type timedRun struct {
	timedJob
	stagers  []*Stager
	benefits []*Benefit
	cfg      plan.Config
	scores   []float32
	plans    []*plan.Plan
	now      time.Duration
	free     time.Duration // when storage is free
	events   timedEvents
	count    int
	waiting  int // deliveries of the batch under way
	epoch    int
	batch    int
	ends     []time.Duration   // of epochs
	got      []draw.SampleID   // by all trainers, in order of batches and trainers
	kept     [][]draw.SampleID // by rank, at the end
	rereads  int
}

type timedEvent struct {
	at    time.Duration
	order int
	do    func()
}

type timedEvents []timedEvent

func (e timedEvents) Len() int { return len(e) }
func (e timedEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e timedEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *timedEvents) Push(x any)   { *e = append(*e, x.(timedEvent)) }
func (e *timedEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

const timedEpochs = 3

func (j timedJob) run(t interface{ Fatalf(string, ...any) }) *timedRun {
	r := &timedRun{timedJob: j, scores: protocol.EqualScores(j.samples, 1)}
	for id := range r.scores {
		r.scores[id] += float32(id%7) / 2
	}
	world := make([]int32, j.ranks)
	for i := range world {
		world[i] = int32(i)
	}
	sampler, err := draw.NewSampler(draw.SamplerConfig{
		Name: j.sampler, Samples: j.samples, BatchSize: j.batchSize, World: j.ranks,
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	for rank := range j.ranks {
		r.stagers = append(r.stagers, New(Config{
			Rank: rank, Ranks: j.ranks, World: world, Samples: j.samples,
			Size: func(draw.SampleID) int64 { return 1 }, Policy: NewClairvoyant(),
			CapacityBytes: int64(j.capacity * float64(j.samples) / float64(j.ranks)),
			WindowBytes:   int64(32 * j.batchSize),
		}))
		r.benefits = append(r.benefits, NewBenefit(0, 1))
	}
	r.cfg = plan.Config{
		Sampler: sampler, Samples: j.samples, BatchSize: j.batchSize, World: world, Ranks: j.ranks,
	}
	r.plan()
	r.train()
	for len(r.events) > 0 && r.epoch < timedEpochs {
		e := heap.Pop(&r.events).(timedEvent)
		r.now = e.at
		e.do()
	}
	if r.epoch < timedEpochs {
		t.Fatalf("nothing happens any more in epoch %d, batch %d", r.epoch, r.batch)
	}
	for _, s := range r.stagers {
		ids := []draw.SampleID{}
		for id := range draw.SampleID(j.samples) {
			if s.Cache().Resident(id) {
				ids = append(ids, id)
			}
		}
		r.kept = append(r.kept, ids)
	}
	return r
}

// plan plans the next epoch.
func (r *timedRun) plan() {
	epoch := len(r.plans)
	for rank := range r.ranks {
		r.cfg.Rank = rank
		p := plan.New(r.cfg, epoch, r.scores)
		if rank == 0 {
			r.plans = append(r.plans, p)
		}
		r.step(rank, Planned{
			Plan: p, Probe: r.benefits[rank].Begin(epoch, 0, p.Batches(), r.measured),
		})
	}
}

func (r *timedRun) at(at time.Duration, do func()) {
	r.count++
	heap.Push(&r.events, timedEvent{at, r.count, do})
}

// train has all trainers request the next batch.
func (r *timedRun) train() {
	r.waiting = r.ranks
	at := len(r.got)
	lo, hi := r.plans[r.epoch].Range(r.batch)
	r.got = append(r.got, make([]draw.SampleID, hi-lo)...)[:at]
	for rank := range r.ranks {
		r.step(rank, Requested{
			Trainer: rank, Epoch: r.epoch, Batch: r.batch, Ticket: uint64(rank) + 1,
		})
	}
}

func (r *timedRun) stored(do func()) {
	r.free = max(r.free, r.now) + r.read
	r.at(r.free+r.latency, do)
}

func (r *timedRun) step(rank int, e Event) {
	for _, c := range r.stagers[rank].Step(e, nil) {
		switch c := c.(type) {
		case Fetch:
			r.stored(func() { r.step(rank, Fetched{ID: c.ID}) })
		case Read:
			r.rereads++
			r.stored(func() { r.step(rank, Reread{ID: c.ID}) })
		case Timed:
			r.benefits[rank].Ready(c.Epoch, c.Batch, r.now)
		case Ask:
			r.at(r.now, func() {
				r.step(c.Peer, Asked{
					Peer: rank, Ticket: c.Ticket, Epoch: c.Epoch, Batch: c.Batch, IDs: c.IDs,
				})
			})
		case Send:
			r.at(r.now, func() {
				r.step(rank, Sent{c.Peer, c.Ticket})
				r.step(c.Peer, Received{Ticket: c.Ticket, Status: c.Status})
			})
		case Deliver:
			r.got = append(r.got, c.IDs...)
			r.at(r.now+r.timedJob.step, func() { r.step(rank, Released{c.Lease}) })
			if r.waiting--; r.waiting == 0 {
				r.at(r.now+r.timedJob.step, r.trained)
			}
		}
	}
}

func (r *timedRun) trained() {
	for rank := range r.stagers {
		r.step(rank, Scored{
			Epoch: r.epoch, Batch: r.batch, Scores: r.scores, Total: float64(r.samples),
			Known: func(draw.SampleID) bool { return true },
		})
	}
	if r.batch++; r.batch == r.plans[r.epoch].Batches()*7/8 {
		r.plan()
	}
	if r.batch == r.plans[r.epoch].Batches() {
		r.ends = append(r.ends, r.now)
		if r.epoch, r.batch = r.epoch+1, 0; r.epoch == timedEpochs {
			return
		}
	}
	r.train()
}

// last is how long the last epoch took.
func (r *timedRun) last() time.Duration {
	return r.ends[len(r.ends)-1] - r.ends[len(r.ends)-2]
}

// TestBenefit compares the benefit that is measured with that of two separate runs, one without a
// cache: they differ by a tenth at most. The last three rows have the times of Quiver's Table 3,
// those of hits as steps and those of misses as reads: b = t_m/t_h (§5.3).
func TestBenefit(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		ranks        int
		sampler      string
		capacity     float64
		batches      int
		read, step   time.Duration // of a batch of all ranks
		latencyReads int
	}{
		{1, "torch", 1, 400, 50 * ms, 100 * ms, 0},
		{1, "torch", 1, 400, 105 * ms, 100 * ms, 1},
		{1, "torch", 1, 400, 120 * ms, 100 * ms, 3},
		{1, "torch", 1, 400, 300 * ms, 100 * ms, 3},
		{1, "torch", 0.5, 400, 300 * ms, 100 * ms, 3},
		{1, "torch", 0.5, 400, 150 * ms, 100 * ms, 3},
		{1, "uniform", 0.2, 800, 300 * ms, 100 * ms, 3},
		{2, "torch", 1, 400, 200 * ms, 100 * ms, 2},
		{2, "torch", 0.5, 400, 200 * ms, 50 * ms, 2},
		{4, "pads", 0.5, 400, 200 * ms, 100 * ms, 2},
		{1, "torch", 1, 400, 1614 * ms, 1234 * ms, 1},
		{1, "torch", 1, 400, 2874 * ms, 1274 * ms, 1},
		{1, "torch", 1, 400, 2505 * ms, 646 * ms, 1},
	} {
		name := fmt.Sprintf("%d ranks, %s, %v of the data, %v read, %v step", c.ranks, c.sampler,
			c.capacity, c.read, c.step)
		perBatch := 4 * c.ranks
		j := timedJob{
			ranks: c.ranks, samples: c.batches * perBatch, batchSize: 4, sampler: c.sampler,
			capacity: c.capacity, step: c.step, read: c.read / time.Duration(perBatch),
			latency: c.read / time.Duration(perBatch) * time.Duration(c.latencyReads),
		}
		cold := j
		cold.capacity = 0
		want := float64(cold.run(t).last()) / float64(j.run(t).last())
		j.measured = true
		run := j.run(t)
		for rank, b := range run.benefits {
			got := b.Measured().Ratio()
			if math.Abs(got/want-1) > 0.1 {
				t.Errorf("%s: rank %d measures %.3f (%+v); separate runs show %.3f", name, rank, got,
					b.Measured(), want)
			}
		}
	}
}

// TestBenefitEpochs checks in which epochs trainings are measured, and that one that could not be
// measured when it was due is measured as soon as it can be.
func TestBenefitEpochs(t *testing.T) {
	type begin struct {
		from, batches int
		may           bool
	}
	yes, no := begin{0, 200, true}, begin{0, 200, false}
	for name, c := range map[string]struct {
		slot   int
		epochs []begin
		want   []int
	}{
		"usual":          {0, slices.Repeat([]begin{yes}, 40), []int{1, 7, 31}},
		"fifth training": {4, slices.Repeat([]begin{yes}, 10), []int{2, 8}},
		"alone at first": {0, []begin{no, no, yes, yes, yes, yes, yes, yes}, []int{2, 7}},
		"resumed":        {0, []begin{yes, {150, 200, true}, yes, yes}, []int{2}},
		"short epochs":   {0, slices.Repeat([]begin{{0, 159, true}}, 10), nil},
	} {
		b := NewBenefit(c.slot, 1)
		var got []int
		for epoch, e := range c.epochs {
			if p := b.Begin(epoch, e.from, e.batches, e.may); p != (Probe{}) {
				got = append(got, epoch)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: measured in %v, want %v", name, got, c.want)
		}
	}
}

// complete reports the batches of a probe as complete, those of the stretch n at a time, each step
// after the ones before, and all others at the pace of with.
func complete(b *Benefit, epoch int, p Probe, n int, with, step time.Duration) (known bool) {
	for i, batch := range p.timed() {
		at := time.Duration(batch) * with
		if batch >= p.Begin && batch < p.End {
			at = time.Duration(p.Begin)*with + time.Duration((i-1)/n*n)*step
		} else if batch > p.End {
			at += time.Duration(p.End-1-p.Begin) * (step - with)
		}
		known = b.Ready(epoch, batch, at)
	}
	return known
}

// TestBenefitOutOfOrder completes the last batches of the stretch before its first, as may happen
// when the window holds both: such times mean nothing, so the next epoch is measured.
func TestBenefitOutOfOrder(t *testing.T) {
	const batches = 400
	b := NewBenefit(0, 1)
	b.Begin(0, 0, batches, true)
	p := b.Begin(1, 0, batches, true)
	if p == (Probe{}) || complete(b, 1, p, 1, time.Second, -time.Millisecond) {
		t.Fatalf("%+v is measured, though its batches are complete in another order", p)
	}
	p = b.Begin(2, 0, batches, true)
	if p == (Probe{}) || !complete(b, 2, p, 1, time.Second, 5*time.Second) {
		t.Errorf("the next epoch is not measured: %+v", p)
	}
	if got := b.Measured().Ratio(); math.Abs(got-5) > 0.01 {
		t.Errorf("the benefit is %v, want 5", got)
	}
	if p := b.Begin(3, 0, batches, true); p != (Probe{}) {
		t.Errorf("the epoch after that is measured again: %+v", p)
	}
}

// TestBenefitOfRequestsForSeveral checks that a benefit is right to a tenth if batches are complete
// several at a time, as clients request them.
func TestBenefitOfRequestsForSeveral(t *testing.T) {
	for _, c := range []struct{ batches, together int }{{160, 2}, {200, 2}, {200, 3}, {400, 4}} {
		b := NewBenefit(0, 1)
		b.Begin(0, 0, c.batches, true)
		p := b.Begin(1, 0, c.batches, true)
		if !complete(b, 1, p, c.together, time.Second, 2*time.Second) {
			t.Fatalf("%+v: nothing was measured", c)
		}
		if got := b.Measured().Ratio(); math.Abs(got-2) > 0.2 {
			t.Errorf("%+v: the benefit is %.3f, want 2", c, got)
		}
	}
}

// TestBenefitMovesNothing checks that measuring changes neither the stream nor what stays in
// memory, however long steps and reads take, and that a measured epoch reads at most the batches of
// one stretch in addition.
func TestBenefitMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, least, most int) int {
			return rapid.IntRange(least, most).Draw(t, name)
		}
		j := timedJob{
			ranks: draw("ranks", 1, 3), batchSize: draw("batch", 1, 4),
			sampler:  rapid.SampledFrom([]string{"torch", "uniform", "chunks"}).Draw(t, "sampler"),
			capacity: rapid.Float64Range(0, 1).Draw(t, "capacity"),
		}
		j.samples = draw("batches", 160, 250) * j.ranks * j.batchSize
		timed := func() *timedRun {
			j.step = time.Duration(draw("step", 1, 1e6))
			j.read = time.Duration(draw("read", 1, 1e6))
			j.latency = time.Duration(draw("latency", 0, 1e7))
			return j.run(t)
		}
		plain := timed()
		j.measured = true
		measured := timed()
		sortBatches(plain)
		sortBatches(measured)
		if !slices.Equal(plain.got, measured.got) {
			t.Fatal("training gets other samples")
		}
		if !slices.EqualFunc(plain.kept, measured.kept, slices.Equal) && j.ranks == 1 {
			t.Fatal("other samples stay in memory")
		}
		if most := j.samples/20 + j.batchSize*j.ranks; measured.rereads > most {
			t.Fatalf("%d samples were read for it, of %d", measured.rereads, j.samples)
		}
	})
}

// sortBatches sorts what the trainers got of each batch, since they may get it in any order.
func sortBatches(r *timedRun) {
	at := 0
	for range timedEpochs {
		for b := range r.plans[0].Batches() {
			lo, hi := r.plans[0].Range(b)
			slices.Sort(r.got[at : at+hi-lo])
			at += hi - lo
		}
	}
}
