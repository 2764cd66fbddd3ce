package scheduler

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// seeds is how many worlds with faults are simulated; make test-nightly has thousands.
var seeds = flag.Uint64("seeds", 60, "simulated worlds with faults")

// world is a deterministic simulation of all ranks of a job: coordinators, stagers, storage, peers
// and trainers whose actions happen in a random order drawn from a seed, with faults. Trainers move
// in step, as an all-reduce makes them. Messages between two ranks arrive in order, after any
// delay.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	ranks   []*simRank
	cfg     PlanConfig
	pending []func() // things that will happen, in any order
	faults  faults
	errors  map[SampleID]bool // samples that cannot be read
	size    func(SampleID) int64
	read    map[int]map[SampleID]int // by epoch (of the slowest trainer): storage reads
	got     map[int][]SampleID       // by position: delivered, all trainers
	sources [6]int
	losses  func(epoch int, id SampleID) float32
	plans   map[int]*Plan
	tickets uint64

	recalled, ended int // samples read from tiers; tiers that were abandoned

	sent     [][]CoordinatorEvent // by trainer: what its rank still has to hear
	trainers []simTrainer
	newRank  func(rank int) *simRank
	open     func(trainer int) // makes a trainer open the data set
	commands []string          // of all ranks' stagers, in order, when they are kept
	made     int               // plans, by all ranks
	keep     bool
}

type faults struct {
	loseAnswers int // one in so many questions is never answered in time
	noRoom      int // one in so many fetches finds no room
	unreadable  int // one in so many samples cannot be read
	badTier     int // one in so many writes to the tier, and reads of it, fails
	busyTier    int // one in so many writes is refused
	shrink      int // memory is taken away at one in so many reads
	idle        int // ranks without trainers, the last ones
	restart     int // all ranks are killed after one in so many batches, and restarted
	warm        int // one in so many of these take over what the rank before had in memory
	spoilt      int // one in so many of their samples has other bytes than were written
}

type simRank struct {
	*simMemory
	w           *world
	coordinator *Coordinator
	events      []CoordinatorEvent
	stepping    bool
	told        [][]CoordinatorEvent // by rank: what it still has to hear from this one
	left        int                  // plans that the stager has released
	answered    map[uint64]AnswerPlan
	disk        map[int][]byte // by epoch: the states that plans were made from
	folder      []func()       // what is to be done there, in order

	stager *Stager
	tier   simTier
	hungry bool
	want   map[uint64]func(Deliver)
}

// simMemory is the memory of a simulated rank, and what it has asked others for.
type simMemory struct {
	t       *testing.T
	rank    int
	does    func(Event)           // what the rank does at an event
	bytes   map[SampleID]bool     // what is in the slab
	answers map[uint32][]SampleID // questions under way
}

func newSimMemory(t *testing.T, rank int) *simMemory {
	return &simMemory{
		t: t, rank: rank, bytes: map[SampleID]bool{}, answers: map[uint32][]SampleID{},
	}
}

// send answers a question of another rank, later.
func (m *simMemory) send(c Send, asker *simMemory, later func(func())) {
	for i, id := range c.IDs {
		if c.Status[i] != Absent && !m.bytes[id] {
			m.t.Fatalf("rank %d: sends sample %d, and it is not here", m.rank, id)
		}
	}
	later(func() {
		m.does(Sent{c.Peer, c.Ticket})
		for i, id := range asker.answers[c.Ticket] {
			if c.Status[i] != Absent {
				asker.bytes[id] = true
			}
		}
		delete(asker.answers, c.Ticket)
		asker.does(Received{Ticket: c.Ticket, Status: c.Status})
	})
}

func newWorld(
	t *testing.T, seed uint64, ranks, perRank, batchSize, samples, epochs int, sampler,
	policy string, capacity float64, assignment Assignment, f faults, tier ...float64,
) *world {
	t.Helper()
	trainers := make([]int32, (ranks-f.idle)*perRank)
	for i := range trainers {
		trainers[i] = int32(i / perRank)
	}
	s, err := NewSampler(
		SamplerConfig{
			Name: sampler, Samples: samples, Seed: int64(seed), BatchSize: batchSize,
			World: len(trainers),
		})
	if err != nil {
		t.Fatal(err)
	}
	size := func(id SampleID) int64 { return 100 + int64(id%7)*10 }
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), faults: f, size: size,
		errors: map[SampleID]bool{},
		read:   map[int]map[SampleID]int{}, got: map[int][]SampleID{}, plans: map[int]*Plan{},
		losses: func(epoch int, id SampleID) float32 {
			return float32(hashLoss(uint64(id))) + float32(epoch)*0.01
		},
	}
	owned := make([]int64, ranks)
	for id := range samples {
		owned[Owner(SampleID(id), ranks)] += size(SampleID(id))
		if f.unreadable > 0 && w.rng.IntN(f.unreadable) == 0 {
			w.errors[SampleID(id)] = true
		}
	}
	w.sent = make([][]CoordinatorEvent, len(trainers))
	w.cfg = PlanConfig{
		Sampler: s, Samples: samples, BatchSize: batchSize, World: trainers,
		Ranks: ranks, Assignment: assignment,
	}
	w.newRank = func(r int) *simRank {
		tierBytes := int64(0)
		for _, share := range tier {
			tierBytes = int64(share * float64(owned[r]))
		}
		rank := &simRank{
			simMemory: newSimMemory(t, r),
			w:         w, told: make([][]CoordinatorEvent, ranks),
			answered: map[uint64]AnswerPlan{},
			disk:     map[int][]byte{},
			coordinator: NewCoordinator(CoordinatorConfig{
				Rank: r, Ranks: ranks, Samples: samples, Epochs: epochs, Scorer: "logrank",
			}),
			tier: simTier{}, want: map[uint64]func(Deliver){},
			stager: NewStager(StagerConfig{
				Rank: r, Ranks: ranks, World: trainers, Samples: samples, Size: size,
				Policy:        testPolicies[policy](),
				CapacityBytes: int64(capacity * float64(owned[r])),
				WindowBytes:   130 * int64(batchSize*perRank) * 8,
				TierBytes:     tierBytes, TierBlockBytes: tierBlock, Sparse: r%2 == 1,
			}),
		}
		rank.does = rank.step
		return rank
	}
	for r := range ranks {
		w.ranks = append(w.ranks, w.newRank(r))
	}
	w.trainers = make([]simTrainer, len(trainers))
	w.open = func(trainer int) {
		w.send(trainer, Opened{Rank: int(trainers[trainer]), Spec: Spec{
			Sampler: sampler, Seed: int64(seed), BatchSize: batchSize, World: len(trainers),
			Trainer:  trainer,
			Training: &Training{Life: uint64(trainer), Planned: w.trainers[trainer].planned},
		}})
	}
	for trainer := range trainers {
		w.open(trainer)
	}
	return w
}

// send sends an event from a trainer to its rank, which receives the trainer's events in order.
func (w *world) send(trainer int, e CoordinatorEvent) {
	w.sent[trainer] = append(w.sent[trainer], e)
	w.later(func() {
		e := w.sent[trainer][0]
		w.sent[trainer] = w.sent[trainer][1:]
		w.ranks[w.cfg.World[trainer]].coordinate(e)
	})
}

func hashLoss(x uint64) float64 {
	x = x*0x9e3779b97f4a7c15 + 1
	return float64((x>>40)%1000) / 1000
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

// coordinate passes an event to the rank's coordinator, and those that follow from it at once.
func (r *simRank) coordinate(e CoordinatorEvent) {
	r.events = append(r.events, e)
	if r.stepping {
		return
	}
	r.stepping = true
	for len(r.events) > 0 {
		e := r.events[0]
		r.events = r.events[1:]
		r.coordinator.Step(e, r.obey)
	}
	r.stepping = false
}

func (r *simRank) obey(c CoordinatorCommand) {
	w := r.w
	if w.keep {
		w.commands = append(w.commands, fmt.Sprintf("rank %d: %s", r.rank, say(c)))
	}
	then := func(e CoordinatorEvent) { w.later(func() { r.coordinate(e) }) }
	switch c := c.(type) {
	case Begin:
		then(Begun{Weighted: w.cfg.Sampler.Weighted()})
	case ReadStates:
		r.inFolder(r.readStates)
	case MakePlan:
		then(w.make(r, c))
	case KeepState:
		r.inFolder(func() {
			r.disk[c.Snap.Epoch] = c.Snap.Encode()
			r.coordinate(StateKept{c.Snap.Epoch, c.Generation})
		})
	case ForgetStates:
		r.inFolder(func() {
			maps.DeleteFunc(r.disk, func(epoch int, _ []byte) bool { return epoch < c.Before })
		})
	case Drive:
		r.step(c.Event)
	case AnswerPlan:
		r.answered[c.Ticket] = c
	case Tell:
		for other := range w.ranks {
			if other != r.rank {
				r.told[other] = append(r.told[other], c.Event)
				w.later(func() {
					e := r.told[other][0]
					r.told[other] = r.told[other][1:]
					w.ranks[other].coordinate(e)
				})
			}
		}
	case Refuse:
		w.t.Fatalf("rank %d refuses a trainer: %s", r.rank, c.Why)
	case Log:
		w.t.Fatalf("rank %d: %s: %v", r.rank, c.Text, c.Err)
	}
}

// inFolder does what a rank does in its folder, in order and at any time.
func (r *simRank) inFolder(do func()) {
	r.folder = append(r.folder, do)
	r.w.later(func() {
		do := r.folder[0]
		r.folder = r.folder[1:]
		do()
	})
}

func (r *simRank) readStates() {
	var e StatesRead
	for _, epoch := range slices.Sorted(maps.Keys(r.disk)) {
		snap, err := DecodeSnapshot(r.disk[epoch])
		e.Kept = append(e.Kept, StateFile{Snap: snap, Err: err})
	}
	r.coordinate(e)
}

// make makes a plan for a rank, which must be the same as on the other ranks.
func (w *world) make(r *simRank, c MakePlan) PlanMade {
	cfg := w.cfg
	cfg.Rank = r.rank
	e := PlanMade{Plan: NewPlan(cfg, c.Epoch, c.Scores)}
	if cfg.Sampler.Weighted() {
		e.Scores = c.Digest()
	}
	w.made++
	if other := w.plans[c.Epoch]; other == nil {
		w.plans[c.Epoch] = e.Plan
	} else if !slices.Equal(other.IDs, e.Plan.IDs) ||
		!slices.Equal(other.Consumer, e.Plan.Consumer) {
		w.t.Fatalf("rank %d: its plan of epoch %d is not that of another rank", r.rank, c.Epoch)
	}
	return e
}

func (r *simRank) step(e Event) {
	commands := r.stager.Step(e, nil)
	freed := false
	for _, c := range commands {
		if r.w.keep {
			r.w.commands = append(r.w.commands, fmt.Sprintf("rank %d: %T %+v", r.rank, c, c))
		}
		switch c := c.(type) {
		case Fetch:
			r.w.later(func() { r.fetch(c.ID) })
		case Check:
			r.w.later(func() { r.check(c.ID) })
		case Ask:
			r.ask(c)
		case Send:
			r.send(c, r.w.ranks[c.Peer].simMemory, r.w.later)
		case Deliver:
			f := r.want[c.Ticket]
			if f == nil {
				r.w.t.Fatalf("rank %d: a delivery to ticket %d that nobody waits for", r.rank,
					c.Ticket)
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
	if n := r.stager.PlansLeft(0); n != r.left {
		r.left = n
		for _, epoch := range r.coordinator.Open() {
			if !r.stager.Knows(0, epoch) {
				r.coordinate(Left{epoch})
			}
		}
	}
	if used, cap := r.stager.Cache().UsedBytes(), r.stager.cfg.CapacityBytes; used > cap {
		r.w.t.Fatalf("rank %d: residents of %d bytes in a partition of %d", r.rank, used, cap)
	}
}

func (r *simRank) fetch(id SampleID) {
	w := r.w
	switch {
	case w.errors[id]:
		r.step(Fetched{ID: id, Err: errors.New("unreadable")})
	case w.chance(w.faults.noRoom):
		if !r.hungry {
			r.hungry = true
			w.later(func() { r.hungry = false; r.step(Room{}) })
		}
		r.step(Starved{ID: id})
	default:
		epoch := r.stager.lanes[0].cur.Epoch
		if w.read[epoch] == nil {
			w.read[epoch] = map[SampleID]int{}
		}
		w.read[epoch][id]++
		r.bytes[id] = true
		r.step(Fetched{ID: id})
		if w.chance(w.faults.shrink) {
			w.later(r.shrink)
		}
	}
}

// shrink takes away a tenth of the partition, and half of the residents' places.
func (r *simRank) shrink() {
	cache := r.stager.Cache()
	e := Shrunk{CapacityBytes: cache.capacityBytes * 9 / 10}
	for i, u := range cache.Residents() {
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
	if r.w.chance(r.w.faults.loseAnswers) {
		r.w.later(func() {
			delete(r.answers, c.Ticket)
			r.step(PeerLost{c.Ticket})
		})
		return
	}
	r.w.later(func() {
		r.w.ranks[c.Peer].step(
			Asked{Peer: r.rank, Ticket: c.Ticket, Epoch: c.Epoch, Batch: c.Batch, IDs: c.IDs})
	})
}

// trainAll plans and runs epochs, the first one from batch from, and ends.
func (w *world) trainAll(epochs, from, ahead int) {
	for epoch := range epochs {
		w.plan(epoch, from)
		w.train(epoch, from, ahead)
		from = 0
	}
	w.settled()
}

// train runs an epoch from batch from: every trainer requests batches in order, up to ahead batches
// early, as DataLoader workers do.
func (w *world) train(epoch, from, ahead int) {
	plan := w.plans[epoch]
	world := len(w.cfg.World)
	delivered := make([]map[int]Deliver, world)
	asked := make([]int, world)
	for t := range delivered {
		delivered[t] = map[int]Deliver{}
		asked[t] = from
	}
	for b := from; b < plan.Batches(); b++ {
		for t := range world {
			for ; asked[t] < min(plan.Batches(), b+1+ahead); asked[t]++ {
				w.request(t, epoch, asked[t], delivered[t])
			}
		}
		w.until(func() bool {
			for t := range world {
				if _, ok := delivered[t][b]; !ok {
					return false
				}
			}
			return true
		}, fmt.Sprintf("epoch %d batch %d", epoch, b))
		for t := range world {
			w.trained(t, epoch, b, plan, delivered[t][b])
		}
		if w.chance(w.faults.restart) {
			w.restart()
			for t := range delivered {
				delivered[t] = map[int]Deliver{}
				asked[t] = b + 1
			}
		}
	}
}

func (w *world) request(t, epoch, batch int, into map[int]Deliver) {
	w.tickets++
	ticket, r := w.tickets, w.ranks[w.cfg.World[t]]
	w.later(func() {
		if !r.coordinator.Knows(epoch) { // it was restarted: the trainer reads storage
			if r.coordinator.Complete() {
				r.coordinate(BatchWanted{epoch, batch})
			}
			into[batch] = w.byItself(t, epoch, batch)
			return
		}
		r.want[ticket] = func(d Deliver) { into[batch] = d }
		r.step(Requested{Trainer: t, Epoch: epoch, Batch: batch, Ticket: ticket})
	})
}

// trained checks a delivered part against the plan and the slab, reports, and releases it.
func (w *world) trained(t, epoch, b int, plan *Plan, d Deliver) {
	r := w.ranks[w.cfg.World[t]]
	want := plan.Part(b, t)
	if fmt.Sprint(want) != fmt.Sprint(d.IDs) {
		w.t.Fatalf("epoch %d batch %d trainer %d: got %v, want %v", epoch, b, t, d.IDs, want)
	}
	losses := make([]float32, len(want))
	for i, id := range d.IDs {
		w.sources[d.Source[i]]++
		if d.Source[i] < NotHere && !r.bytes[id] {
			w.t.Fatalf("rank %d: sample %d was delivered from %v, and it is not here", r.rank, id,
				d.Source[i])
		}
		if (d.Source[i] == Unreadable) != (d.Errs[i] != nil) ||
			d.Source[i] == Unreadable && !w.errors[id] {
			w.t.Fatalf("sample %d: source %v, error %v", id, d.Source[i], d.Errs[i])
		}
		losses[i] = w.losses(epoch, id)
	}
	e := Trained{Rank: r.rank, Trainer: t, Epoch: epoch, Batch: b, Losses: losses}
	w.trainers[t].trained = append(w.trainers[t].trained, e)
	w.send(t, e)
	if d.Lease != 0 {
		w.later(func() { r.step(Released{d.Lease}) })
	}
}

// until lets things happen until done.
func (w *world) until(done func() bool, what string) {
	for !done() {
		if !w.one() && (w.faults.restart == 0 || !w.timeOut()) {
			w.t.Fatalf("%s: nothing happens any more", what)
		}
	}
}

// plan makes every trainer request an epoch's plan, when the previous epoch has ended, until all
// have it.
func (w *world) plan(epoch, from int) {
	tickets := make([]uint64, len(w.cfg.World))
	for t := range w.cfg.World {
		w.tickets++
		tickets[t] = w.tickets
		w.send(t, PlanWanted{Trainer: t, Epoch: epoch, Batch: from, Ticket: tickets[t]})
	}
	w.until(func() bool {
		for t, r := range w.cfg.World {
			if w.ranks[r].answered[tickets[t]].Plan == nil {
				return false
			}
		}
		return true
	}, fmt.Sprintf("the plan of epoch %d", epoch))
	for t, r := range w.cfg.World {
		w.trainers[t].got(w.ranks[r], epoch, w.ranks[r].answered[tickets[t]].Scores)
	}
}

// settled checks, at the end, that nothing is pinned and only residents are in memory.
func (w *world) settled() {
	for w.one() {
	}
	for _, r := range w.ranks {
		r.step(Ended{})
		for w.one() {
		}
		r.tierSettled()
		for range 3 * aheadBatches { // end promises to peers that read storage instead
			r.stager.lanes[0].promises.expire(1<<60, r.stager.lanes[0].letGo)
		}
		for id := range SampleID(w.cfg.Samples) {
			c := r.stager.copies.get(id)
			resident := r.stager.store.cache.Resident(id)
			if c.pins != 0 {
				for _, p := range r.stager.lanes[0].parts {
					w.t.Logf("rank %d still has part %+v", r.rank, p)
				}
				w.t.Fatalf("rank %d: sample %d has %d pins left", r.rank, id, c.pins)
			}
			if c.state == here && !resident && !r.bytesFreed(id) {
				w.t.Fatalf("rank %d: sample %d is here and no resident", r.rank, id)
			}
		}
	}
}

func (r *simRank) bytesFreed(id SampleID) bool { return !r.bytes[id] }

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
					w := newWorld(t, 7, 3, 2, 4, 500, 3, sampler, policy, capacity, AssignLocal,
						faults{})
					w.trainAll(3, 0, 3)
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
		f := faults{
			loseAnswers: 9, noRoom: 11, unreadable: 50, shrink: 40 * int(seed/8%2),
			idle: int(seed / 16 % 2),
		}
		w := newWorld(t, seed, f.idle+1+int(seed%4), 1+int(seed%2), 3, 200, 2,
			[]string{"uniform", "pads"}[seed%2], []string{"clairvoyant", "lru"}[seed/2%2], 0.3,
			Assignment(seed/4%2), f)
		w.trainAll(2, int(seed%5), int(seed%4))
	}
}

// TestStagerReplays checks that the same events give the same commands, in the same order.
func TestStagerReplays(t *testing.T) {
	replays(t, 2, faults{loseAnswers: 20})
}

// replays runs a world of three ranks several times, since the order of a map differs from run to
// run.
func replays(t *testing.T, epochs int, f faults, tier ...float64) {
	t.Helper()
	var first []string
	for i := range 4 {
		w := newWorld(t, 3, 3, 1, 4, 300, epochs, "pads", "clairvoyant", 0.2, AssignLocal, f,
			tier...)
		w.keep = true
		for epoch := range epochs {
			w.plan(epoch, 0)
			w.train(epoch, 0, 2)
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
	sampler, err := NewSampler(SamplerConfig{
		Name: "sequential", Samples: samples, BatchSize: math.MaxInt32, World: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := NewStager(StagerConfig{
		Ranks: 1, World: []int32{0}, Samples: samples, Size: laneSize, Policy: NewClairvoyant(),
		WindowBytes: 1 << 10,
	})
	s.Step(Planned{Plan: NewPlan(PlanConfig{
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
