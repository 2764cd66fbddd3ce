package stager

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// seeds is how many worlds with faults are simulated; make test-nightly has thousands.
var seeds = flag.Uint64("seeds", 60, "simulated worlds with faults")

// world is a deterministic simulation of the stagers of some ranks, with storage, peers, tiers and
// trainers whose actions happen in a random order drawn from a seed, with faults. Trainings may
// begin, pause and end at any time; the trainers of one move in step, as an all-reduce makes them.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	cfg     worldConfig
	ranks   []*simRank
	pending []func()               // things that will happen, in any order
	broken  map[draw.SampleID]bool // samples that cannot be read
	lanes   []*simLane             // by number; nil: not open
	tickets uint64
	newRank func(rank int) *simRank

	read     map[int]map[draw.SampleID]int // by epoch of the first lane: storage reads
	sources  [6]int
	batches  int // trained, by all lanes
	reread   int // samples that were in memory
	recalled int // samples read from tiers
	tierHits int // of lanes that are closed
	ended    int // tiers that were abandoned

	commands []string // of all ranks, in order, when they are kept
	keep     bool
}

// worldConfig describes a world, whose first lane trains with a sampler.
type worldConfig struct {
	seed                               uint64
	ranks, perRank, batchSize, samples int
	idle                               int // ranks without trainers, the last ones
	sampler, policy                    string
	capacity, tier                     float64 // parts of the samples that a rank owns
	assignment                         plan.Assignment
	ahead                              int  // batches that trainers ask for early
	from                               int  // the first batch of the first epoch
	window                             int  // the batches that a rank has room for besides; 0: 8
	probes                             bool // some batches are timed
	faults
}

type faults struct {
	loseAnswers int // one in so many questions is never answered in time
	noRoom      int // one in so many fetches finds no room
	unreadable  int // one in so many samples cannot be read
	badTier     int // one in so many writes to the tier, and reads of it, fails
	busyTier    int // one in so many writes is refused
	shrink      int // memory is taken away at one in so many reads
	spoilt      int // one in so many samples that a rank took over has other bytes
}

// simRank is a simulated rank: its stager, its memory, and what it has asked others for.
type simRank struct {
	w       *world
	rank    int
	stager  *Stager
	bytes   map[draw.SampleID]bool     // what is in the slab
	answers map[uint32][]draw.SampleID // questions under way
	tier    simTier
	hungry  bool
	want    map[uint64]func(Deliver)
	told    []func() // plans and scores, which come in order
}

// simLane is a training: its trainers request global batches in step.
type simLane struct {
	number  int
	cfg     plan.Config
	ahead   int
	plans   []*plan.Plan // by epoch
	scores  []float32
	epoch   int
	batch   int                     // to be trained next
	asked   int                     // batches of the epoch that were asked for
	got     map[int]map[int]Deliver // by batch and trainer
	busy    bool                    // a batch is under way
	stopped bool
}

func worldSize(id draw.SampleID) int64 { return 100 + int64(id%7)*10 }

func newWorld(t *testing.T, cfg worldConfig) *world {
	t.Helper()
	if cfg.window == 0 {
		cfg.window = 8
	}
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(cfg.seed, 1)), cfg: cfg, broken: map[draw.SampleID]bool{},
		read: map[int]map[draw.SampleID]int{},
	}
	owned := make([]int64, cfg.ranks)
	for id := range draw.SampleID(cfg.samples) {
		owned[draw.Owner(id, cfg.ranks)] += worldSize(id)
		w.broken[id] = w.chance(cfg.unreadable)
	}
	world := trainersOf(cfg.ranks-cfg.idle, cfg.perRank)
	w.newRank = func(r int) *simRank {
		return &simRank{
			w: w, rank: r, bytes: map[draw.SampleID]bool{}, answers: map[uint32][]draw.SampleID{},
			tier: simTier{}, want: map[uint64]func(Deliver){},
			stager: New(Config{
				Rank: r, Ranks: cfg.ranks, World: world, Samples: cfg.samples, Size: worldSize,
				Policy:         testPolicies[cfg.policy](),
				CapacityBytes:  int64(cfg.capacity * float64(owned[r])),
				WindowBytes:    130 * int64(cfg.batchSize*cfg.perRank*cfg.window),
				TierBytes:      int64(cfg.tier * float64(owned[r])),
				TierBlockBytes: tierBlock, Sparse: r%2 == 1,
			}),
		}
	}
	for r := range cfg.ranks {
		w.ranks = append(w.ranks, w.newRank(r))
	}
	w.open(0, cfg.sampler, world, cfg.batchSize)
	w.lanes[0].batch, w.lanes[0].asked = cfg.from, cfg.from
	return w
}

// trainersOf returns the ranks of trainers, so many on each rank.
func trainersOf(ranks, perRank int) []int32 {
	world := make([]int32, ranks*perRank)
	for t := range world {
		world[t] = int32(t / perRank)
	}
	return world
}

func (w *world) later(f func()) { w.pending = append(w.pending, f) }

// one lets one pending thing happen.
func (w *world) one() bool {
	if len(w.pending) == 0 {
		return false
	}
	i := w.rng.IntN(len(w.pending))
	f := w.pending[i]
	w.pending[i] = w.pending[len(w.pending)-1]
	w.pending = w.pending[:len(w.pending)-1]
	f()
	return true
}

func (w *world) chance(oneIn int) bool { return oneIn > 0 && w.rng.IntN(oneIn) == 0 }

// open opens a lane, on all ranks at once.
func (w *world) open(number int, sampler string, world []int32, batchSize int) {
	s, err := draw.NewSampler(draw.SamplerConfig{
		Name: sampler, Samples: w.cfg.samples, Seed: w.rng.Int64(), BatchSize: batchSize,
		World: len(world),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	l := &simLane{
		number: number, ahead: w.cfg.ahead, got: map[int]map[int]Deliver{},
		scores: protocol.EqualScores(w.cfg.samples, 1),
		cfg: plan.Config{
			Sampler: s, Samples: w.cfg.samples, BatchSize: batchSize, World: world,
			Ranks: w.cfg.ranks, Assignment: w.cfg.assignment,
		},
	}
	for len(w.lanes) <= number {
		w.lanes = append(w.lanes, nil)
	}
	w.lanes[number] = l
	for _, r := range w.ranks {
		if number > 0 {
			r.step(LaneOpened{Lane: number, World: world})
		}
	}
}

// close ends a training, in the middle of whatever it does: its requests are no longer answered.
func (w *world) close(number int) {
	l := w.lanes[number]
	w.lanes[number] = nil
	for _, got := range l.got {
		for t, d := range got {
			w.ranks[l.cfg.World[t]].trained(d)
		}
	}
	for _, r := range w.ranks {
		for _, hits := range r.stager.lanes[number].tierHits {
			w.tierHits += hits
		}
		r.step(LaneClosed{Lane: number})
	}
}

// tell tells a rank something about a lane, after what it was told before.
func (r *simRank) tell(l *simLane, e Event) {
	r.told = append(r.told, func() {
		if r.w.lanes[l.number] == l {
			r.step(e)
		}
	})
	r.w.later(func() {
		do := r.told[0]
		r.told = r.told[1:]
		do()
	})
}

// plan plans the next epoch of a lane.
func (w *world) plan(l *simLane) {
	epoch, from := len(l.plans), 0
	if epoch == 0 {
		from = l.batch
	}
	var probe Probe
	if w.cfg.probes {
		begin := 1 + w.rng.IntN(4)
		probe = Probe{First: 0, Begin: begin, End: begin + 1 + w.rng.IntN(5), Last: 12}
	}
	for _, r := range w.ranks {
		w.score(l, r, -1, 0, nil)
		cfg := l.cfg
		cfg.Rank = r.rank
		p := plan.New(cfg, epoch, l.scores)
		if len(l.plans) == epoch {
			l.plans = append(l.plans, p)
		}
		r.tell(l, Planned{Lane: l.number, Plan: p, From: from, Probe: probe})
	}
}

// score tells a rank a lane's scores, if its sampler uses them.
func (w *world) score(l *simLane, r *simRank, epoch, batch int, ids []draw.SampleID) {
	if !l.cfg.Sampler.Weighted() {
		return
	}
	e := Scored{
		Lane: l.number, Epoch: epoch, Batch: batch, IDs: ids, Scores: slices.Clone(l.scores),
		Known: func(draw.SampleID) bool { return true },
	}
	for _, score := range e.Scores {
		e.Total += float64(score)
	}
	r.tell(l, e)
}

// train begins the next batch of a lane. Trainers request batches in order, some early, as
// DataLoader workers do.
func (w *world) train(l *simLane) {
	if l.epoch < len(l.plans) && l.batch == l.plans[l.epoch].Batches() {
		l.epoch, l.batch, l.asked = l.epoch+1, 0, 0
	}
	if l.epoch == len(l.plans) {
		w.plan(l)
	}
	l.busy = true
	until := min(l.plans[l.epoch].Batches(), l.batch+1+l.ahead)
	for ; l.asked < until; l.asked++ {
		for t, rank := range l.cfg.World {
			w.request(l, w.ranks[rank], t, l.epoch, l.asked)
		}
	}
	w.look(l)
}

func (w *world) request(l *simLane, r *simRank, t, epoch, batch int) {
	w.tickets++
	ticket := w.tickets
	r.want[ticket] = func(d Deliver) {
		if want := l.plans[epoch].Part(batch, t); !slices.Equal(want, d.IDs) {
			w.t.Fatalf("lane %d epoch %d batch %d trainer %d: got %v, want %v", l.number, epoch, batch,
				t, d.IDs, want)
		}
		if l.got[batch] == nil {
			l.got[batch] = map[int]Deliver{}
		}
		l.got[batch][t] = d
		w.look(l)
	}
	var ask func()
	ask = func() {
		switch {
		case w.lanes[l.number] != l:
		case r.stager.Plan(l.number, epoch) == nil: // the plan is on its way
			w.later(ask)
		default:
			r.step(Requested{
				Lane: l.number, Trainer: t, Epoch: epoch, Batch: batch, Ticket: ticket,
			})
		}
	}
	w.later(ask)
}

// look trains a batch when all trainers have got it.
func (w *world) look(l *simLane) {
	if !l.busy || len(l.got[l.batch]) < len(l.cfg.World) {
		return
	}
	epoch, batch, plan := l.epoch, l.batch, l.plans[l.epoch]
	for t, rank := range l.cfg.World {
		w.ranks[rank].trained(l.got[batch][t])
	}
	delete(l.got, batch)
	l.busy, l.batch = false, batch+1
	w.batches++
	lo, hi := plan.Range(batch)
	for _, id := range plan.IDs[lo:hi] {
		l.scores[id] = 0.1 + float32(w.rng.IntN(1000))/1000
	}
	for _, r := range w.ranks {
		w.score(l, r, epoch, batch, plan.IDs[lo:hi])
	}
	if epoch == len(l.plans)-1 && batch > plan.Batches()*7/8 && w.chance(2) {
		w.plan(l)
	}
}

// trained checks a delivery against what is in memory, and releases it.
func (r *simRank) trained(d Deliver) {
	for i, id := range d.IDs {
		r.w.sources[d.Source[i]]++
		if d.Source[i] < NotHere && !r.bytes[id] {
			r.w.t.Fatalf("rank %d: sample %d was delivered from %v, and it is not here", r.rank, id,
				d.Source[i])
		}
		if (d.Source[i] == Unreadable) != (d.Errs[i] != nil) ||
			d.Source[i] == Unreadable && !r.w.broken[id] {
			r.w.t.Fatalf("sample %d: source %v, error %v", id, d.Source[i], d.Errs[i])
		}
	}
	if d.Lease != 0 {
		r.w.later(func() { r.step(Released{d.Lease}) })
	}
}

func (r *simRank) step(e Event) {
	freed := false
	for _, c := range r.stager.Step(e, nil) {
		if r.w.keep {
			r.w.commands = append(r.w.commands, fmt.Sprintf("rank %d: %T %+v", r.rank, c, c))
		}
		switch c := c.(type) {
		case Fetch:
			r.w.later(func() { r.fetch(c.ID) })
		case Read:
			r.w.later(func() { r.reread(c.ID) })
		case Check:
			r.w.later(func() { r.check(c.ID) })
		case Ask:
			r.ask(c)
		case Send:
			r.send(c, r.w.ranks[c.Peer])
		case Deliver:
			f := r.want[c.Ticket]
			if f == nil {
				r.w.t.Fatalf("rank %d: delivery to ticket %d, which nobody waits for", r.rank, c.Ticket)
			}
			delete(r.want, c.Ticket)
			f(c)
		case Free:
			if !r.bytes[c.ID] {
				r.w.t.Fatalf("rank %d: sample %d freed, and it is not here", r.rank, c.ID)
			}
			delete(r.bytes, c.ID)
			freed = true
		default:
			r.tierStep(c)
		}
	}
	if freed && r.hungry {
		r.hungry = false
		r.w.later(func() { r.step(Room{}) })
	}
	if used, most := r.stager.Cache().UsedBytes(), r.stager.cfg.CapacityBytes; used > most {
		r.w.t.Fatalf("rank %d: residents of %d bytes in a partition of %d", r.rank, used, most)
	}
}

func (r *simRank) fetch(id draw.SampleID) {
	w := r.w
	switch {
	case w.broken[id]:
		r.step(Fetched{ID: id, Err: errors.New("unreadable")})
	case w.chance(w.cfg.noRoom):
		if !r.hungry {
			r.hungry = true
			w.later(func() { r.hungry = false; r.step(Room{}) })
		}
		r.step(Starved{ID: id})
	default:
		if l := r.stager.lane(0); l != nil && l.cur != nil {
			if w.read[l.cur.Epoch] == nil {
				w.read[l.cur.Epoch] = map[draw.SampleID]int{}
			}
			w.read[l.cur.Epoch][id]++
		}
		r.bytes[id] = true
		r.step(Fetched{ID: id})
		if w.chance(w.cfg.shrink) {
			w.later(r.shrink)
		}
	}
}

// shrink takes away a tenth of the partition, and half of the residents' places.
func (r *simRank) shrink() {
	cache := r.stager.Cache()
	e := Shrunk{CapacityBytes: cache.capacityBytes * 9 / 10}
	for i, u := range cache.uses() {
		if i%2 == 0 {
			e.IDs = append(e.IDs, u.ID)
		}
	}
	r.step(e)
	for _, id := range e.IDs {
		if cache.Resident(id) {
			r.w.t.Fatalf("rank %d: sample %d stays where memory was taken away", r.rank, id)
		}
	}
	if cache.UsedBytes() > e.CapacityBytes {
		r.w.t.Fatalf("rank %d: %d bytes stay in a partition of %d", r.rank, cache.UsedBytes(),
			e.CapacityBytes)
	}
}

func (r *simRank) ask(c Ask) {
	r.answers[c.Ticket] = c.IDs
	if r.w.chance(r.w.cfg.loseAnswers) {
		r.w.later(func() {
			delete(r.answers, c.Ticket)
			r.step(PeerLost{c.Ticket})
		})
		return
	}
	r.w.later(func() {
		r.w.ranks[c.Peer].step(Asked{
			Lane: c.Lane, Peer: r.rank, Ticket: c.Ticket, Epoch: c.Epoch, Batch: c.Batch, IDs: c.IDs,
		})
	})
}

// reread ends a Read.
func (r *simRank) reread(id draw.SampleID) {
	var err error
	if r.w.broken[id] || r.w.rng.IntN(100) == 0 {
		err = errors.New("unreadable")
	}
	r.w.reread++
	r.step(Reread{ID: id, Err: err})
}

// send answers a question of another rank, later.
func (r *simRank) send(c Send, asker *simRank) {
	for i, id := range c.IDs {
		if c.Status[i] != Absent && !r.bytes[id] {
			r.w.t.Fatalf("rank %d: sends sample %d, and it is not here", r.rank, id)
		}
	}
	r.w.later(func() {
		r.step(Sent{c.Peer, c.Ticket})
		for i, id := range asker.answers[c.Ticket] {
			if c.Status[i] != Absent {
				asker.bytes[id] = true
			}
		}
		delete(asker.answers, c.Ticket)
		asker.step(Received{Ticket: c.Ticket, Status: c.Status})
	})
}

// trainAll trains epochs of the first lane, and ends.
func (w *world) trainAll(epochs int) {
	for range epochs {
		w.trainEpoch()
	}
	w.settled()
}

// trainEpoch trains the first lane until an epoch ends.
func (w *world) trainEpoch() {
	l := w.lanes[0]
	for first := true; first || l.batch < l.plans[l.epoch].Batches(); first = false {
		w.train(l)
		for l.busy {
			if !w.one() {
				w.t.Fatalf("epoch %d batch %d: nothing happens any more", l.epoch, l.batch)
			}
		}
	}
}

// settled closes all lanes and checks that they leave nothing but residents behind.
func (w *world) settled() {
	for w.one() {
	}
	for number, l := range w.lanes {
		if l != nil {
			w.close(number)
		}
	}
	for w.one() {
	}
	for _, r := range w.ranks {
		r.tierSettled()
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
		for id := range draw.SampleID(w.cfg.samples) {
			c := s.copies.get(id)
			if c.pins != 0 || c.state != absent && !s.store.cache.Resident(id) {
				w.t.Fatalf("rank %d: sample %d is left: %+v", r.rank, id, c)
			}
		}
	}
}

func (w *world) wantNoFaults(t *testing.T) {
	t.Helper()
	if w.sources[FromFallback] != 0 || w.sources[NotHere] != 0 || w.sources[Unreadable] != 0 {
		t.Errorf("without faults, sources are %v", w.sources)
	}
}

func TestStagerServesEveryBatch(t *testing.T) {
	for _, sampler := range []string{
		"torch", "uniform", "pads", "weighted-once", "subset",
		"sequential",
	} {
		for _, policy := range []string{"clairvoyant", "lru"} {
			for _, capacity := range []float64{0, 0.2, 1} {
				t.Run(fmt.Sprintf("%s/%s/%v", sampler, policy, capacity), func(t *testing.T) {
					w := newWorld(t, worldConfig{
						seed: 7, ranks: 3, perRank: 2, batchSize: 4, samples: 500, ahead: 3,
						sampler: sampler, policy: policy, capacity: capacity,
					})
					w.trainAll(3)
					w.wantNoFaults(t)
					if capacity == 1 && sampler != "subset" && sampler != "pads" {
						for id, n := range w.read[2] {
							t.Errorf(
								"with room for all, sample %d is read %d times in the third epoch",
								id, n)
						}
					}
					for epoch, reads := range w.read {
						for id, n := range reads {
							if n > 1 && capacity == 1 {
								t.Errorf("epoch %d: sample %d is read %d times", epoch, id, n)
							}
						}
					}
				})
			}
		}
	}
}

func TestStagerUnderFaults(t *testing.T) {
	for seed := range *seeds {
		idle := int(seed / 16 % 2)
		w := newWorld(t, worldConfig{
			seed: seed, ranks: idle + 1 + int(seed%4), idle: idle, perRank: 1 + int(seed%2),
			batchSize: 3, samples: 200, from: int(seed % 5), ahead: int(seed % 4),
			sampler: []string{"uniform", "pads"}[seed%2],
			policy:  []string{"clairvoyant", "lru"}[seed/2%2], capacity: 0.3,
			assignment: plan.Assignment(seed / 4 % 2),
			faults: faults{
				loseAnswers: 9, noRoom: 11, unreadable: 50, shrink: 40 * int(seed/8%2),
			},
		})
		w.trainAll(2)
	}
}

// TestStagerReplays checks that the same events give the same commands, in the same order.
func TestStagerReplays(t *testing.T) {
	replays(t, 2, 0, faults{loseAnswers: 20})
}

// replays runs a world of three ranks several times, since the order of a map differs from run to
// run.
func replays(t *testing.T, epochs int, tier float64, f faults) {
	t.Helper()
	var first []string
	for i := range 4 {
		w := newWorld(t, worldConfig{
			seed: 3, ranks: 3, perRank: 1, batchSize: 4, samples: 300, ahead: 2, sampler: "pads",
			policy: "clairvoyant", capacity: 0.2, tier: tier, faults: f,
		})
		w.keep = true
		for range epochs {
			w.trainEpoch()
		}
		if i == 0 {
			first = w.commands
		}
		if len(w.commands) < 300*epochs {
			t.Fatalf("%d commands in %d epochs of 300 samples", len(w.commands), epochs)
		}
		for k, c := range w.commands {
			if k >= len(first) || c != first[k] {
				t.Fatalf("run %d, command %d: %s; the first run has %s", i, k, c,
					first[min(k, len(first)-1)])
			}
		}
		if len(w.commands) != len(first) {
			t.Fatalf("run %d: %d commands, the first run has %d", i, len(w.commands), len(first))
		}
	}
}

// TestStagerHugeBatch has a batch size that a client may ask for, and only as many draws as the
// epoch: the part has room for these, not for a whole batch.
func TestStagerHugeBatch(t *testing.T) {
	const samples = 5
	sampler, err := draw.NewSampler(draw.SamplerConfig{
		Name: "sequential", Samples: samples, BatchSize: math.MaxInt32, World: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Ranks: 1, World: []int32{0}, Samples: samples, Size: worldSize, Policy: NewClairvoyant(),
		WindowBytes: 1 << 10,
	})
	s.Step(Planned{Plan: plan.New(plan.Config{
		Sampler: sampler, Samples: samples, BatchSize: math.MaxInt32, World: []int32{0}, Ranks: 1,
	}, 0, nil)}, nil)
	s.Step(Requested{Ticket: 1}, nil)
	for _, p := range s.lanes[0].parts {
		if len(p.ids) != samples || cap(p.ids) > 2*samples || cap(p.source) > 8*samples {
			t.Errorf("%d draws, and room for %d ids and %d sources", len(p.ids), cap(p.ids), cap(p.source))
		}
	}
	if len(s.lanes[0].parts) != 1 {
		t.Errorf("%d parts, want 1", len(s.lanes[0].parts))
	}
}
