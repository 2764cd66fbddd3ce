package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// laneWorld is a simulation of the stagers of some ranks that serve several trainings, which begin,
// pause and end at any time. A seed determines what happens next.
type laneWorld struct {
	t       *testing.T
	rng     *rand.Rand
	samples int
	ranks   []*laneRank
	pending []func()
	lanes   []*simLane // by number; nil: not open
	tickets uint64
	broken  map[SampleID]bool
	batches int // trained, by all lanes
	reread  int // samples that were in memory
}

type laneRank struct {
	*simMemory
	w      *laneWorld
	stager *Stager
	hungry bool
	want   map[uint64]func(Deliver)
	leases map[uint32]*simLane
}

// simLane is a training: its trainers request global batches in step.
type simLane struct {
	number  int
	cfg     PlanConfig
	plans   []*Plan // by epoch
	epoch   int
	batch   int
	waiting int  // parts of the batch under way
	busy    bool // a batch is under way
	stopped bool
}

func newLaneWorld(t *testing.T, seed uint64, ranks, samples int, capacity float64) *laneWorld {
	w := &laneWorld{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)), samples: samples, broken: map[SampleID]bool{},
	}
	for id := range SampleID(samples) {
		if w.rng.IntN(60) == 0 {
			w.broken[id] = true
		}
	}
	for r := range ranks {
		rank := &laneRank{
			simMemory: newSimMemory(t, r),
			w:         w, want: map[uint64]func(Deliver){}, leases: map[uint32]*simLane{},
			stager: NewStager(StagerConfig{
				Rank: r, Ranks: ranks, World: []int32{0}, Samples: samples, Size: laneSize,
				Policy:        NewClairvoyant(),
				CapacityBytes: int64(capacity * 100 * float64(samples/ranks)),
				WindowBytes:   100 * 40,
			}),
		}
		rank.does = rank.step
		w.ranks = append(w.ranks, rank)
	}
	return w
}

func laneSize(id SampleID) int64 { return 90 + int64(id%3)*10 }

func (w *laneWorld) later(f func()) { w.pending = append(w.pending, f) }

func (w *laneWorld) one() bool {
	if len(w.pending) == 0 {
		return false
	}
	i := w.rng.IntN(len(w.pending))
	f := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	f()
	return true
}

// open opens a lane, all ranks at once.
func (w *laneWorld) open(number int, sampler string, perRank, batchSize int) {
	world := make([]int32, perRank*len(w.ranks))
	for t := range world {
		world[t] = int32(t / perRank)
	}
	if number == 0 {
		world = []int32{0} // as the stagers were made
	}
	s, err := NewSampler(SamplerConfig{
		Name: sampler, Samples: w.samples, Seed: w.rng.Int64(), BatchSize: batchSize,
		World: len(world),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	l := &simLane{number: number, cfg: PlanConfig{
		Sampler: s, Samples: w.samples, BatchSize: batchSize, World: world, Ranks: len(w.ranks),
	}}
	for len(w.lanes) <= number {
		w.lanes = append(w.lanes, nil)
	}
	w.lanes[number] = l
	for _, r := range w.ranks {
		if number > 0 {
			r.step(LaneOpened{Lane: number, World: world})
		}
	}
	w.plan(l)
}

// plan plans the next epoch of a lane.
func (w *laneWorld) plan(l *simLane) {
	scores := EqualScores(w.samples, 1)
	for id := range scores {
		scores[id] += w.rng.Float32()
	}
	var first *Plan
	for _, r := range w.ranks {
		if l.cfg.Sampler.Weighted() {
			r.step(Scored{
				Lane: l.number, Epoch: -1, Scores: scores, Total: 1.5 * float64(w.samples),
				Known: func(SampleID) bool { return true },
			})
		}
		cfg := l.cfg
		cfg.Rank = r.rank
		p := NewPlan(cfg, len(l.plans), scores)
		if first == nil {
			first = p
		}
		begin := 1 + w.rng.IntN(4)
		n := 1 + w.rng.IntN(5)
		r.step(Planned{
			Lane: l.number, Plan: p, Probe: Probe{First: 0, Begin: begin, End: begin + n, Last: 12},
		})
	}
	l.plans = append(l.plans, first)
}

// train begins the next batch of a lane.
func (w *laneWorld) train(l *simLane) {
	if l.batch == l.plans[l.epoch].Batches() {
		l.epoch, l.batch = l.epoch+1, 0
		if l.epoch == len(l.plans) {
			w.plan(l)
		}
	}
	plan, epoch, batch := l.plans[l.epoch], l.epoch, l.batch
	l.busy, l.waiting = true, len(l.cfg.World)
	for t, rank := range l.cfg.World {
		r := w.ranks[rank]
		w.tickets++
		r.want[w.tickets] = func(d Deliver) {
			if want := plan.Part(batch, t); !slices.Equal(want, d.IDs) {
				w.t.Fatalf("lane %d epoch %d batch %d trainer %d: got %v, want %v", l.number, epoch,
					batch, t, d.IDs, want)
			}
			r.check(d)
			w.later(func() { r.step(Released{d.Lease}) })
			if l.waiting--; l.waiting == 0 {
				w.batches++
				l.busy, l.batch = false, l.batch+1
				if l.cfg.Sampler.Weighted() {
					w.later(func() { w.scored(l, epoch, batch) })
				}
			}
		}
		r.step(Requested{
			Lane: l.number, Trainer: t, Epoch: epoch, Batch: batch, Ticket: w.tickets,
		})
	}
}

func (w *laneWorld) scored(l *simLane, epoch, batch int) {
	if w.lanes[l.number] != l {
		return
	}
	lo, hi := l.plans[epoch].Range(batch)
	for _, r := range w.ranks {
		r.step(Scored{
			Lane: l.number, Epoch: epoch, Batch: batch, IDs: l.plans[epoch].IDs[lo:hi],
			Scores: EqualScores(w.samples, 1), Total: float64(w.samples),
			Known: func(SampleID) bool { return true },
		})
	}
}

// close ends a training, in the middle of whatever it does: its requests are no longer answered.
func (w *laneWorld) close(number int) {
	w.lanes[number] = nil
	for _, r := range w.ranks {
		r.step(LaneClosed{Lane: number})
	}
}

// check checks a delivery against what is in memory.
func (r *laneRank) check(d Deliver) {
	for i, id := range d.IDs {
		if d.Source[i] < NotHere && !r.bytes[id] {
			r.w.t.Fatalf("rank %d: sample %d was delivered, and it is not here", r.rank, id)
		}
		if d.Source[i] == Unreadable && !r.w.broken[id] {
			r.w.t.Fatalf("rank %d: sample %d counts as unreadable", r.rank, id)
		}
	}
}

func (r *laneRank) step(e Event) {
	w := r.w
	freed := false
	for _, c := range r.stager.Step(e, nil) {
		switch c := c.(type) {
		case Fetch:
			w.later(func() { r.fetch(c.ID) })
		case Read:
			w.later(func() { r.reread(c.ID) })
		case Ask:
			r.answers[c.Ticket] = c.IDs
			if w.rng.IntN(15) == 0 {
				w.later(func() {
					delete(r.answers, c.Ticket)
					r.step(PeerLost{c.Ticket})
				})
				continue
			}
			w.later(func() {
				w.ranks[c.Peer].step(Asked{
					Lane: c.Lane, Peer: r.rank, Ticket: c.Ticket, Epoch: c.Epoch, Batch: c.Batch,
					IDs: c.IDs,
				})
			})
		case Send:
			r.send(c, w.ranks[c.Peer].simMemory, w.later)
		case Deliver:
			f := r.want[c.Ticket]
			delete(r.want, c.Ticket)
			f(c)
		case Free:
			if !r.bytes[c.ID] {
				w.t.Fatalf("rank %d: sample %d is freed, and it is not here", r.rank, c.ID)
			}
			delete(r.bytes, c.ID)
			freed = true
		}
	}
	if freed && r.hungry {
		r.hungry = false
		w.later(func() { r.step(Room{}) })
	}
	if used, most := r.stager.Cache().UsedBytes(), r.stager.cfg.CapacityBytes; used > most {
		w.t.Fatalf("rank %d: residents of %d bytes in a partition of %d", r.rank, used, most)
	}
}

func (r *laneRank) fetch(id SampleID) {
	switch {
	case r.w.broken[id]:
		r.step(Fetched{ID: id, Err: errors.New("unreadable")})
	case r.w.rng.IntN(20) == 0:
		if !r.hungry {
			r.hungry = true
			r.w.later(func() { r.hungry = false; r.step(Room{}) })
		}
		r.step(Starved{ID: id})
	default:
		r.bytes[id] = true
		r.step(Fetched{ID: id})
	}
}

func (r *laneRank) reread(id SampleID) {
	var err error
	if r.w.broken[id] || r.w.rng.IntN(100) == 0 {
		err = errors.New("unreadable")
	}
	r.w.reread++
	r.step(Reread{ID: id, Err: err})
}

// settled closes all lanes and checks that they leave nothing but residents behind.
func (w *laneWorld) settled() {
	for number, l := range w.lanes {
		if l != nil {
			w.close(number)
		}
	}
	for w.one() {
	}
	for _, r := range w.ranks {
		s := r.stager
		if len(s.leases)+len(s.byTicket)+len(s.asks)+len(s.answers)+len(s.waiting)+
			len(s.rereads) > 0 {
			w.t.Fatalf("rank %d: %d leases, %d requests, %d questions, %d answers, %d waits and %d "+
				"reads are left", r.rank, len(s.leases), len(s.byTicket), len(s.asks), len(s.answers),
				len(s.waiting), len(s.rereads))
		}
		if s.windowBytes != 0 {
			w.t.Fatalf("rank %d: %d bytes of the window are left", r.rank, s.windowBytes)
		}
		for id := range SampleID(w.samples) {
			c := s.copies.get(id)
			if c.pins != 0 || c.state != absent && !s.store.cache.Resident(id) {
				w.t.Fatalf("rank %d: sample %d is left: %+v", r.rank, id, c)
			}
		}
	}
}

// TestLanes lets trainings begin, pause and end at random, with faults. Each gets what it draws,
// none delays the others, and an ended one leaves nothing behind.
func TestLanes(t *testing.T) {
	reread := 0
	for seed := range *seeds {
		w := newLaneWorld(t, seed, 1+int(seed%3), 150, []float64{0, 0.2, 1}[seed/3%3])
		samplers := []string{"torch", "pads", "chunks", "weighted-once", "subset"}
		w.open(0, samplers[seed%5], 1, 4)
		for w.batches < 400 {
			switch n := w.rng.IntN(200); {
			case n == 0 && len(w.lanes) < 5:
				w.open(len(w.lanes), samplers[w.rng.IntN(5)], 1+w.rng.IntN(2), 1+w.rng.IntN(5))
			case n == 1:
				if number := w.rng.IntN(len(w.lanes)); w.lanes[number] != nil && len(w.lanes) > 2 {
					w.close(number)
				}
			case n == 2:
				if number := w.rng.IntN(len(w.lanes)); w.lanes[number] == nil && number > 0 {
					w.open(number, "uniform", 1, 3)
				}
			case n == 3:
				if l := w.lanes[w.rng.IntN(len(w.lanes))]; l != nil {
					l.stopped = !l.stopped
				}
			}
			going := false
			for _, l := range w.lanes {
				if l == nil || l.stopped {
					continue
				}
				going = true
				if !l.busy && w.rng.IntN(1+l.number) == 0 {
					w.train(l)
				}
			}
			if !w.one() && going && !slices.ContainsFunc(w.lanes,
				func(l *simLane) bool { return l != nil && !l.stopped && !l.busy }) {
				t.Fatalf("seed %d: nothing happens any more, after %d batches", seed, w.batches)
			}
		}
		w.settled()
		reread += w.reread
	}
	if reread == 0 {
		t.Error("no sample that was in memory was read for a probe")
	}
}

// TestLanesComeAndGo opens and closes a hundred lanes.
func TestLanesComeAndGo(t *testing.T) {
	w := newLaneWorld(t, 1, 2, 60, 0.3)
	w.open(0, "torch", 1, 4)
	for i := range 100 {
		number := 1 + i%7
		w.open(number, "uniform", 1, 2)
		for range 5 {
			for _, l := range w.lanes {
				if l != nil && !l.busy {
					w.train(l)
				}
			}
			for w.one() {
			}
		}
		w.close(number)
	}
	if n := len(w.ranks[0].stager.lanes); n > 8 {
		t.Errorf("there are %d lanes", n)
	}
	w.settled()
}

// TestLaneWindow checks that a lane that stands still leaves the window to the others.
func TestLaneWindow(t *testing.T) {
	w := newLaneWorld(t, 1, 1, 3200, 0.1)
	w.open(0, "torch", 1, 1)
	w.open(1, "torch", 1, 1)
	for range 200 {
		for _, l := range w.lanes {
			w.train(l)
		}
		for w.one() {
		}
	}
	s := w.ranks[0].stager
	a, b := s.lanes[0], s.lanes[1]
	if most := s.cfg.WindowBytes/2 + 200; a.heldBytes > most || b.heldBytes > most ||
		b.heldBytes < most/2 {
		t.Errorf("lanes hold %d and %d bytes of a window of %d", a.heldBytes, b.heldBytes,
			s.cfg.WindowBytes)
	}
	for range 2900 {
		w.train(w.lanes[0])
		for w.one() {
		}
	}
	ahead := a.cur.position(a.batch) - a.demand
	if ahead < 10 || a.heldBytes+b.heldBytes > s.cfg.WindowBytes+200 {
		t.Errorf("%d batches ahead of the lane that goes, which hold %d bytes, %d of the other",
			ahead, a.heldBytes, b.heldBytes)
	}
}

// TestLaneNeeds checks that reads of a lane that begins late, or was silent for long, come neither
// before nor after those of the others.
func TestLaneNeeds(t *testing.T) {
	w := newLaneWorld(t, 1, 1, 400, 0)
	w.open(0, "torch", 1, 1)
	go100 := func(number int) {
		for range 100 {
			w.train(w.lanes[number])
			for w.one() {
			}
		}
	}
	go100(0)
	w.open(1, "torch", 1, 1)
	w.train(w.lanes[1])
	s := w.ranks[0].stager
	if a, b := s.lanes[0], s.lanes[1]; a.needOf(a.demand) != b.needOf(b.demand) {
		t.Errorf("a newcomer's reads need %d, the others' %d", b.needOf(b.demand), a.needOf(a.demand))
	}
	for w.one() {
	}
	go100(0)
	w.train(w.lanes[1])
	if a, b := s.lanes[0], s.lanes[1]; b.needOf(b.demand) != a.needOf(a.demand) {
		t.Errorf("reads of one that was silent need %d, the others' %d", b.needOf(b.demand),
			a.needOf(a.demand))
	}
	if d := fmt.Sprint(s.Demand()); d == "0" {
		t.Error("nothing is demanded")
	}
}
