package scheduler

import (
	"math"
	"slices"
)

// Stager is one rank's share of one data set as a state machine: it decides what is fetched, asked of peers,
// delivered, kept and freed, and when. Events go in, commands come out; it does nothing itself, and the same
// events give the same commands. It is not safe for concurrent use.
//
// A window of global batches runs ahead of the slowest local trainer, bounded in bytes and in batches. When a
// batch enters it, every draw of a sample that this rank owns passes the policy, and what the local trainers
// consume is brought in: by Fetch if this rank owns it, else by Ask. A sample that its owner would not keep is
// fetched by the rank that consumes it.
//
// Whatever goes wrong costs speed only: a trainer gets the samples of its batch, or is told to read them itself.
type Stager struct {
	cfg    StagerConfig
	own    partition // this rank's
	locals []int     // this rank's trainers

	undecided []undecided // own draws in the window, in order
	patient   bool        // the policy looks ahead, so that draws wait for their scores

	plans     []*planned // oldest first
	plansLeft int        // that are there no more
	cur       *planned   // the plan the window's end is in
	batch     int        // the next batch of cur to enter the window
	progress  []int64    // by trainer: position of the furthest batch requested, -1 before the first
	demand    int64      // furthest position that a local trainer waits for
	asked     int64      // furthest position that a peer asked for

	copies      copyTable
	windowBytes int64 // of the copies that are not residents
	waiting     map[SampleID][]waiter
	starved     []SampleID

	parts     map[partKey]*part
	byTicket  map[uint64]*part
	leases    map[uint32]*part
	lastLease uint32

	asks     map[uint32]*Ask
	lastAsk  uint32
	tierHits map[int]int // by epoch
	promises promises
	early    []Asked // asked for before the window got there
	answers  map[answerKey]*answer

	out []Command
}

// StagerConfig says whose stager it is. All fields but Policy's state stay as they are.
type StagerConfig struct {
	Rank, Ranks   int
	World         []int32 // rank of each trainer
	Samples       int
	Size          func(SampleID) int64
	Policy        Policy
	CapacityBytes int64 // of this rank's partition
	WindowBytes   int64 // of samples brought in ahead, or still in use, that are not residents
	// TierBytes is the capacity of this rank's tier, of which a sample takes whole blocks of TierBlockBytes; 0: there is none.
	TierBytes, TierBlockBytes int64
	// Sparse tables grow with what is held and not with the data set, and are slower: for simulations of many ranks.
	Sparse bool
	// Drew, if it is not nil, is told what each draw of an own sample found, in the order of the plan.
	Drew func(epoch, place int, outcome Outcome)
}

// aheadBatches bounds the window in batches. 64 batches of a tenth of a second hide storage that takes seconds.
const aheadBatches = 64

// ahead is how many batches the window may run ahead of the slowest trainer: of a short epoch a thirty-second, since what is kept is
// decided as a batch enters the window, by scores that lack the losses of the batches in it. On losses recorded from training (8,000
// samples, batch 64, weighted) a quarter costs 0.7 % of the hits, a sixteenth 0.4 %, a thirty-second 0.3 %, two batches 0.25 %.
func (p *planned) ahead() int64 { return int64(max(1, min(aheadBatches, p.Batches()/32))) }

// planned is a plan in the stager's list.
type planned struct {
	*Plan
	from int   // first batch that is trained
	base int64 // position of batch 0: positions count batches over all plans
}

func (p *planned) position(batch int) int64 { return p.base + int64(batch) }

// sampleCopy is what this rank has of a sample.
type sampleCopy struct {
	state  copyState
	source Source // what its first delivery counts as
	window bool   // counted in windowBytes
	pins   uint16 // parts, promises and answers that need it
}

type copyState uint8

const (
	absent copyState = iota
	coming
	here
)

// copyTable says what this rank has of each sample.
type copyTable struct{ table[sampleCopy] }

func (t *copyTable) pin(id SampleID) {
	c := t.get(id)
	c.pins++
	t.set(id, c)
}

func (t *copyTable) unpin(id SampleID) {
	c := t.get(id)
	c.pins--
	t.put(id, c)
}

// put drops what is left of a sample that is neither here, coming nor needed.
func (t *copyTable) put(id SampleID, c sampleCopy) {
	if c.state == absent && c.pins == 0 && !c.window {
		c = sampleCopy{}
	}
	t.set(id, c)
}

func (t *copyTable) setSource(id SampleID, source Source) {
	c := t.get(id)
	c.source = source
	t.put(id, c)
}

func (t *copyTable) setState(id SampleID, state copyState) {
	c := t.get(id)
	c.state = state
	t.put(id, c)
}

// NewStager returns a stager that has nothing.
func NewStager(cfg StagerConfig) *Stager {
	entries := cfg.Samples // of the tables
	if cfg.Sparse {
		entries = 0
	}
	cache := NewCache(cfg.Policy, cfg.CapacityBytes, cfg.Size)
	cache.place = newTable[Place](entries)
	s := &Stager{
		cfg:      cfg,
		own:      partition{rank: cfg.Rank, cache: cache, tier: newTier(cfg), drew: cfg.Drew},
		progress: make([]int64, len(cfg.World)),
		demand:   -1,
		asked:    -1,
		copies:   copyTable{newTable[sampleCopy](entries)},
		waiting:  map[SampleID][]waiter{},
		parts:    map[partKey]*part{},
		byTicket: map[uint64]*part{},
		leases:   map[uint32]*part{},
		asks:     map[uint32]*Ask{},
		tierHits: map[int]int{},
		answers:  map[answerKey]*answer{},
	}
	for t, rank := range cfg.World {
		s.progress[t] = -1
		if int(rank) == cfg.Rank {
			s.locals = append(s.locals, t)
		}
	}
	s.promises.byKey = map[promiseKey][]SampleID{}
	_, s.patient = cfg.Policy.(LookAhead)
	return s
}

// Step takes an event and returns the commands that follow from it. The slice is valid until the next Step.
func (s *Stager) Step(e Event) []Command {
	s.out = s.out[:0]
	switch e := e.(type) {
	case Planned:
		s.onPlanned(e)
	case Requested:
		s.onRequested(e)
	case Withdrawn:
		if p := s.byTicket[e.Ticket]; p != nil {
			p.ticket = 0
			delete(s.byTicket, e.Ticket)
		}
	case Released:
		s.onReleased(e)
	case Fetched:
		s.onFetched(e)
	case Starved:
		s.onStarved(e)
	case Room:
		s.onRoom()
	case Received:
		s.onReceived(e)
	case PeerLost:
		s.onPeerLost(e)
	case Asked:
		s.onAsked(e)
	case Sent:
		s.onSent(e)
	case Scored:
		s.onScored(e)
	case Stored:
		s.onStored(e)
	case Recalled:
		s.onRecalled(e)
	case Preloaded:
		s.onPreloaded(e)
	case Shrunk:
		s.onShrunk(e)
	case Ended:
		s.decideUpTo(math.MaxInt64)
	}
	s.advance()
	s.forget()
	return s.out
}

// forget lets go of the plans that every local trainer has left.
func (s *Stager) forget() {
	if s.cur == nil || s.plans[0] == s.cur {
		return
	}
	pos, local := s.slowest()
	if !local {
		pos = s.asked
	}
	for s.plans[0] != s.cur && pos >= s.plans[1].base {
		s.plans = slices.Delete(s.plans, 0, 1)
		s.plansLeft++
	}
}

// PlansLeft is how many plans it has let go of since it was made.
func (s *Stager) PlansLeft() int { return s.plansLeft }

// Knows reports whether the plan of epoch is there.
func (s *Stager) Knows(epoch int) bool { return s.plan(epoch) != nil }

// Plan returns the plan of epoch, or nil.
func (s *Stager) Plan(epoch int) *Plan {
	if p := s.plan(epoch); p != nil {
		return p.Plan
	}
	return nil
}

// PlannedHits is the number of draws of an epoch that this rank's policy called hits: of those, local are consumed by its own
// trainers.
func (s *Stager) PlannedHits(epoch int) (hits, local int) {
	for _, n := range s.own.hits {
		if n.epoch == epoch {
			hits += n.local + n.peer
			local += n.local
		}
	}
	for _, u := range s.undecided {
		if s.cur.Epoch == epoch && s.own.cache.Resident(s.cur.IDs[u.place]) {
			hits++
		}
	}
	return hits, local
}

// Cache returns the partition, for reading.
func (s *Stager) Cache() *Cache { return s.own.cache }

// Ready is the share of what the local trainers are given next, as far as the window reaches, that is in memory; 1 when the window
// is empty.
func (s *Stager) Ready() float64 {
	all, missing := 0, 0
	for _, p := range s.parts {
		all += len(p.ids)
		missing += p.missing
	}
	if all == 0 {
		return 1
	}
	return float64(all-missing) / float64(all)
}

// Demand returns the furthest need (Fetch.Need) that a local trainer waits for, or has waited for.
func (s *Stager) Demand() uint64 { return uint64(max(s.demand, 0)) }

// WindowBytes is the memory held by samples that are not residents.
func (s *Stager) WindowBytes() int64 { return s.windowBytes }

func (s *Stager) plan(epoch int) *planned {
	for i := len(s.plans) - 1; i >= 0; i-- {
		if s.plans[i].Epoch == epoch {
			return s.plans[i]
		}
	}
	return nil
}

func (s *Stager) emit(c Command) { s.out = append(s.out, c) }

func (s *Stager) onPlanned(e Planned) {
	base := int64(0)
	if n := len(s.plans); n > 0 {
		last := s.plans[n-1]
		base = last.position(last.Batches())
	}
	p := &planned{Plan: e.Plan, from: e.From, base: base}
	s.plans = append(s.plans, p)
	for _, a := range s.early {
		if a.Epoch == p.Epoch {
			s.asked = max(s.asked, p.position(a.Batch))
		}
	}
	if s.cur == nil {
		s.startEpoch(s.plans[0])
	} else if s.after(s.cur) == p {
		s.own.foresee(p.Plan)
	}
}

// startEpoch moves the window's end to the beginning of p, and gives the residents their exact next uses.
func (s *Stager) startEpoch(p *planned) {
	s.decideUpTo(math.MaxInt64)
	s.cur, s.batch = p, p.from
	s.own.start(p.Plan, p.view, p.from)
	if next := s.after(p); next != nil {
		s.own.foresee(next.Plan)
	}
}

// advance lets batches into the window while they are demanded or there is room.
func (s *Stager) advance() {
	for s.cur != nil {
		if s.batch >= s.cur.Batches() {
			next := s.after(s.cur)
			if next == nil {
				break
			}
			s.startEpoch(next)
			continue
		}
		if !s.mayEnter() {
			break
		}
		s.enter(s.batch)
		s.batch++
	}
	s.answerEarly()
}

func (s *Stager) after(p *planned) *planned {
	for i, q := range s.plans {
		if q == p && i+1 < len(s.plans) {
			return s.plans[i+1]
		}
	}
	return nil
}

func (s *Stager) mayEnter() bool {
	pos := s.cur.position(s.batch)
	if pos <= s.demand {
		return true
	}
	slowest, local := s.slowest()
	if local && pos > slowest+s.cur.ahead() {
		return false
	}
	if pos <= s.asked {
		return true
	}
	if !local {
		return false
	}
	need := s.batchBytes()
	s.decideFor(s.cfg.WindowBytes-need, slowest)
	return s.windowBytes+need <= s.cfg.WindowBytes
}

// slowest is the position of the slowest local trainer; before its first request a trainer counts as being at
// the beginning of the oldest plan. local is false when no trainer is on this rank.
func (s *Stager) slowest() (pos int64, local bool) {
	pos = math.MaxInt64
	for _, t := range s.locals {
		pos = min(pos, max(s.progress[t], s.plans[0].position(s.plans[0].from)-1))
	}
	return pos, len(s.locals) > 0
}

// batchBytes estimates what a batch adds to the window: this rank's share of the draws, at the mean size of the
// samples that are in.
func (s *Stager) batchBytes() int64 {
	lo, _ := s.cur.Range(s.batch)
	share := (s.cur.Batch + s.cfg.Ranks - 1) / s.cfg.Ranks
	return int64(share) * s.cfg.Size(s.cur.IDs[lo])
}
