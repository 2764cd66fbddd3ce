// Package stager decides, on one rank and for one data set, which samples are fetched, asked for
// from other ranks, delivered, kept and evicted, and when.
package stager

import (
	"maps"
	"math"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// Stager is the state machine that manages one rank's samples of one data set: it decides which
// samples to fetch, request from peers, deliver, keep and free, and when. Events go in, commands
// come out; it performs no I/O, and the same events give the same commands. It is not safe for
// concurrent use.
//
// A window of global batches runs ahead of the slowest local trainer, bounded in bytes and in
// batches. When a batch enters it, the samples that the local trainers consume are brought in: by
// Fetch if this rank owns them, else by Ask. The policy decides which of this rank's own samples
// stay when the batch's losses are known or, if it does not look ahead, when the batch enters. A
// sample that its owner would not keep is fetched by the rank that consumes it.
//
// Failures only cost speed: a trainer receives the samples of its batch, or must read them from
// storage itself.
type Stager struct {
	cfg     Config
	store   store
	patient bool // the policy looks ahead, so draws wait for their scores

	lanes []*lane // by number; nil: it is closed

	copies      copyTable
	windowBytes int64 // of the copies that are not residents
	waiting     map[draw.SampleID][]waiter
	starved     []draw.SampleID

	byTicket  map[uint64]*part
	leases    map[uint32]*part
	lastLease uint32
	rereads   map[draw.SampleID][]*part // that wait for Read

	asks    map[uint32][]draw.SampleID // by ticket: the samples that were requested
	lastAsk uint32
	answers map[Sent]*answer // by the event that ends them

	packages packages

	out []Command
}

// Config is the configuration of a stager. A stager changes nothing in it but Policy's state.
type Config struct {
	Rank, Ranks   int
	World         []int32 // rank of each trainer
	Samples       int
	Size          func(draw.SampleID) int64
	Policy        Policy
	CapacityBytes int64 // of this rank's partition
	WindowBytes   int64 // for samples read ahead or still in use that are not residents
	// TierBytes is the capacity of this rank's tier, in which a sample occupies whole blocks of
	// TierBlockBytes; 0: no tier.
	TierBytes, TierBlockBytes int64
	// PackageBytes is the room for packages that were written and not read yet, in whole blocks of
	// PackageBlockBytes; 0: samples of packages are read one by one.
	PackageBytes, PackageBlockBytes int64
	// OwnersRead makes the owner bring in a sample for whichever rank consumes it, even if it is not
	// kept in memory: the owner has a copy on its disk, or will write one.
	OwnersRead bool
	// Sparse makes tables grow with their contents from the start, for simulations of many ranks.
	Sparse bool
	// Drew, if not nil, is called with what each draw of an own sample found, in the order of the
	// plan.
	Drew func(lane, epoch, place int, outcome Outcome)
	// Kept, if not nil, is called when a sample becomes a resident or ceases to be one.
	Kept func(id draw.SampleID, kept bool)
}

// planned is a plan in the stager's list.
type planned struct {
	*plan.Plan
	from  int   // first batch that is trained
	base  int64 // position of batch 0: positions count batches over all plans
	probe Probe // the batches that are timed
}

func (p *planned) position(batch int) int64 { return p.base + int64(batch) }

// New returns an empty stager.
func New(cfg Config) *Stager {
	cache := NewCache(cfg.Policy, cfg.CapacityBytes, cfg.Size)
	cache.kept = cfg.Kept
	s := &Stager{
		cfg:      cfg,
		store:    store{cache: cache, tier: newTier(cfg), samples: cfg.Samples},
		copies:   copyTable{sparseTable[sampleCopy](0)},
		waiting:  map[draw.SampleID][]waiter{},
		byTicket: map[uint64]*part{},
		leases:   map[uint32]*part{},
		rereads:  map[draw.SampleID][]*part{},
		asks:     map[uint32][]draw.SampleID{},
		answers:  map[Sent]*answer{},
		packages: packages{reading: map[uint32]*pack{}},
	}
	if !cfg.Sparse {
		kept, held := cfg.held()
		cache.place = newTable[Place](cfg.Samples, kept)
		cache.residents.reserve(kept)
		s.copies = copyTable{newTable[sampleCopy](cfg.Samples, held)}
	}
	_, s.patient = cfg.Policy.(LookAhead)
	s.onLaneOpened(LaneOpened{World: cfg.World})
	return s
}

// held returns how many samples of mean size this rank keeps at most, and how many it has in memory
// at most.
func (cfg *Config) held() (kept, held int) {
	total := int64(0)
	for id := range cfg.Samples {
		total += cfg.Size(draw.SampleID(id))
	}
	mean := max(1, total/int64(max(1, cfg.Samples)))
	return int(min(cfg.CapacityBytes, total) / mean),
		int((min(cfg.CapacityBytes, total) + min(cfg.WindowBytes, total)) / mean)
}

// Step handles an event, appends the resulting commands to a slice of the caller, and returns that.
func (s *Stager) Step(e Event, to []Command) []Command {
	s.out = to
	switch e := e.(type) {
	case LaneOpened:
		s.onLaneOpened(e)
	case LaneClosed:
		s.onLaneClosed(e)
	case Planned:
		if l := s.lane(e.Lane); l != nil {
			l.onPlanned(e)
		}
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
	case Reread:
		s.onReread(e)
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
		if l := s.lane(e.Lane); l != nil {
			l.onScored(e)
		}
	case Stored:
		s.onStored(e)
	case Recalled:
		s.onRecalled(e)
	case Packed:
		s.onPacked(e)
	case Unpacked:
		s.onUnpacked(e)
	case Recovered:
		s.onRecovered(e)
	case Checked:
		s.onChecked(e)
	case Shrunk:
		s.onShrunk(e)
	case Weighed:
		if l := s.lane(e.Lane); l != nil {
			s.store.weigh(&l.own, e.Weight)
		}
	case Ended:
		for l := range s.open() {
			l.decideUpTo(math.MaxInt64)
		}
	}
	s.advance()
	for l := range s.open() {
		l.forget()
		l.pack()
	}
	commands := s.out
	s.out = nil
	return commands
}

func (s *Stager) emit(c Command) { s.out = append(s.out, c) }

// Copies of samples

// sampleCopy is this rank's copy of a sample.
type sampleCopy struct {
	state  copyState
	source Source // source of its first delivery
	window bool   // counted in windowBytes
	pins   uint16 // parts, promises and answers that need it
}

type copyState uint8

const (
	absent copyState = iota
	coming
	here
	unchecked // left by the rank before a restart
)

// copyTable holds this rank's copies.
type copyTable struct{ table[sampleCopy] }

func (t *copyTable) pin(id draw.SampleID) {
	c := t.get(id)
	c.pins++
	t.set(id, c)
}

func (t *copyTable) unpin(id draw.SampleID) {
	c := t.get(id)
	c.pins--
	t.put(id, c)
}

// put sets the entry of a sample, or removes it if the sample is neither here, coming nor needed.
func (t *copyTable) put(id draw.SampleID, c sampleCopy) {
	if c.state == absent && c.pins == 0 && !c.window {
		c = sampleCopy{}
	}
	t.set(id, c)
}

func (t *copyTable) setSource(id draw.SampleID, source Source) {
	c := t.get(id)
	c.source = source
	t.put(id, c)
}

func (s *Stager) setState(id draw.SampleID, state copyState, source Source) {
	c := s.copies.get(id)
	c.state, c.source = state, source
	s.copies.put(id, c)
	s.settle(id)
}

// settle frees a sample that is no longer needed, or stores it in the tier, and updates
// windowBytes.
func (s *Stager) settle(id draw.SampleID) {
	c := s.copies.get(id)
	before := c
	resident := s.store.cache.Resident(id)
	if (c.state == here || c.state == unchecked) && c.pins == 0 && !resident {
		if c.state == here && s.spill(id) {
			c.pins++ // until it is stored
		} else {
			c.state = absent
			s.emit(Free{id})
		}
	}
	if t := s.store.tier; t != nil && c.state == absent {
		delete(t.leaving, id)
	}
	c.window = c.state != absent && !resident
	if c.window && !before.window {
		s.windowBytes += s.cfg.Size(id)
	} else if before.window && !c.window {
		s.windowBytes -= s.cfg.Size(id)
	}
	if c != before {
		s.copies.put(id, c)
	}
}

func (s *Stager) unpin(id draw.SampleID) {
	s.copies.unpin(id)
	s.settle(id)
}

// Plans

func (l *lane) onPlanned(e Planned) {
	p := &planned{Plan: e.Plan, from: e.From, probe: e.Probe}
	old := l.plan(p.Epoch)
	if old != nil {
		l.withdraw(old)
	}
	if n := len(l.plans); n > 0 {
		p.base = l.plans[n-1].position(l.plans[n-1].Batches())
	}
	l.plans = append(l.plans, p)
	l.expectPackages(p)
	for _, a := range l.early {
		if a.Epoch == p.Epoch {
			l.asked = max(l.asked, p.position(a.Batch))
		}
	}
	switch {
	case l.cur == nil:
		l.startEpoch(l.plans[0])
	case old == l.cur:
		l.startEpoch(p)
	case l.after(l.cur) == p:
		l.own.foresee(p.Plan)
	}
}

// withdraw drops what was prepared for a plan that another one of its epoch replaces. Requests that
// wait are answered by the old one.
func (l *lane) withdraw(old *planned) {
	l.dropParts(func(p *part) bool { return p.epoch == old.Epoch && p.ticket == 0 })
	for _, p := range l.parts {
		if p.epoch == old.Epoch {
			p.leave()
		}
	}
	if l.reachedBy() >= old.base {
		return // training has begun it: the window moves on
	}
	l.plans = slices.DeleteFunc(l.plans, func(p *planned) bool { return p == old })
	if old == l.cur {
		l.own.hits = l.own.hits[:len(l.own.hits)-1]
	}
}

// reachedBy returns how far the slowest local trainer is or, without any, the peers that ask.
func (l *lane) reachedBy() int64 {
	if pos, local := l.slowest(); local {
		return pos
	}
	return l.asked
}

// startEpoch moves the window's end to the beginning of p, and sets the residents' exact next uses.
func (l *lane) startEpoch(p *planned) {
	l.decideUpTo(math.MaxInt64)
	l.cur, l.batch = p, p.from
	clear(l.probed)
	l.own.start(p.Plan, p.View, p.from)
	if next := l.after(p); next != nil {
		l.own.foresee(next.Plan)
	}
}

// forget releases the plans that every local trainer has left.
func (l *lane) forget() {
	if l.cur == nil || l.plans[0] == l.cur {
		return
	}
	pos := l.reachedBy()
	for l.plans[0] != l.cur && pos >= l.plans[1].base {
		l.plans = slices.Delete(l.plans, 0, 1)
		l.plansLeft++
	}
}

func (l *lane) plan(epoch int) *planned {
	for i := len(l.plans) - 1; i >= 0; i-- {
		if l.plans[i].Epoch == epoch {
			return l.plans[i]
		}
	}
	return nil
}

// after returns the plan after one of the lane's, or nil.
func (l *lane) after(p *planned) *planned {
	if i := slices.Index(l.plans, p) + 1; i < len(l.plans) {
		return l.plans[i]
	}
	return nil
}

// Trainers

// onRequested delivers a part, now or when it is complete. A batch that the window has not reached
// enters it; one that the window has passed is brought in separately.
func (s *Stager) onRequested(e Requested) {
	l := s.lane(e.Lane)
	if l == nil || l.plan(e.Epoch) == nil || e.Batch >= l.plan(e.Epoch).Batches() {
		s.emit(Deliver{Ticket: e.Ticket})
		return
	}
	p := l.request(l.plan(e.Epoch), e)
	p.ticket = e.Ticket
	s.byTicket[e.Ticket] = p
	for _, id := range s.starved {
		s.relieve(id)
	}
	s.tryDeliver(p)
}

// request moves the window to the requested batch, and returns its part.
func (l *lane) request(plan *planned, e Requested) *part {
	pos := plan.position(e.Batch)
	if plan.base > l.cur.base || plan == l.cur && e.Batch > l.batch+aheadBatches {
		l.jump(plan, e.Batch)
	}
	l.demandUpTo(pos)
	if l.progress[e.Trainer] < plan.base { // it has left parts of earlier epochs
		l.dropParts(func(p *part) bool {
			return p.trainer == e.Trainer && p.position < plan.base && p.ticket == 0
		})
	}
	l.progress[e.Trainer] = max(l.progress[e.Trainer], pos)
	l.stager.advance()
	key := partKey{e.Trainer, e.Epoch, e.Batch}
	p := l.parts[key]
	if p == nil {
		p = l.partOf(key, pos)
		for _, id := range plan.Part(e.Batch, e.Trainer) {
			l.need(p, id, pos)
		}
	}
	return p
}

// jump moves the window's end to a batch far ahead, because training left an epoch early or began
// in the middle of one.
func (l *lane) jump(plan *planned, batch int) {
	if plan != l.cur {
		if l.after(l.cur) == plan && l.batch >= l.cur.Batches() {
			return // the ordinary end of an epoch: advance does it
		}
		l.startEpoch(plan)
	}
	if batch <= l.batch+aheadBatches {
		return
	}
	l.decideUpTo(math.MaxInt64)
	for ; l.batch < batch; l.batch++ {
		lo, hi := plan.Range(l.batch)
		for i := lo; i < hi; i++ {
			if plan.Owner(i) == l.stager.cfg.Rank {
				l.own.reach(i)
			}
		}
		l.own.place = hi
	}
}

// dropParts drops the parts that old selects, in order, so that a replay frees in the same order.
func (l *lane) dropParts(old func(*part) bool) {
	for _, p := range slices.SortedFunc(maps.Values(l.parts), (*part).compare) {
		if old(p) {
			delete(l.stager.byTicket, p.ticket)
			l.stager.drop(p)
		}
	}
}

// drop unpins a part's samples and removes it from all lists.
func (s *Stager) drop(p *part) {
	p.leave()
	for _, id := range p.ids {
		rest := slices.DeleteFunc(s.waiting[id], func(w waiter) bool { return w.part == p })
		if len(rest) == 0 {
			delete(s.waiting, id)
		} else {
			s.waiting[id] = rest
		}
	}
	s.unpinPart(p)
}

// unpinPart unpins the samples that a part has or waits for.
func (s *Stager) unpinPart(p *part) {
	for i, id := range p.ids {
		if p.source[i] != NotHere && p.source[i] != Unreadable {
			p.lane.letGo(id)
		}
	}
}

func (s *Stager) tryDeliver(p *part) {
	if p.ticket == 0 || p.missing > 0 || p.lease != 0 {
		return
	}
	for i, id := range p.ids {
		if p.source[i] == FromLocal {
			p.source[i] = s.takeSource(id, p.lane, p.epoch)
		}
	}
	s.lastLease++
	p.lease = s.lastLease
	p.leave()
	delete(s.byTicket, p.ticket)
	s.leases[p.lease] = p
	s.emit(Deliver{Ticket: p.ticket, Lease: p.lease, IDs: p.ids, Source: p.source, Errs: p.errs})
}

// takeSource returns the source of a sample's next delivery, for a lane, nil if that is closed;
// later ones are local hits, until it is brought in again.
func (s *Stager) takeSource(id draw.SampleID, l *lane, epoch int) Source {
	source := s.copies.get(id).source
	s.copies.setSource(id, FromLocal)
	if source != fromTier {
		return source
	}
	if l != nil {
		l.tierHits[epoch]++
	}
	return FromLocal
}

func (s *Stager) onReleased(e Released) {
	p := s.leases[e.Lease]
	if p == nil {
		return
	}
	delete(s.leases, e.Lease)
	s.unpinPart(p)
}

// Storage and memory

// fetch requests a sample from the tier if that has it, else from storage, and sets its source.
func (s *Stager) fetch(id draw.SampleID, need uint64, source Source) {
	if s.store.tier.has(id) {
		s.copies.setSource(id, fromTier)
		s.emit(Recall{ID: id, Need: need})
		return
	}
	if source == fromTier {
		source = FromStorage
	}
	s.copies.setSource(id, source)
	s.emit(Fetch{ID: id, Need: need})
}

func (s *Stager) onFetched(e Fetched) {
	if e.Err != nil {
		s.lose(e.ID, e.Err)
		return
	}
	if e.Kept {
		s.copies.setSource(e.ID, fromTier)
	}
	s.arrive(e.ID)
}

// arrive marks a coming sample as here, and notifies its waiters.
func (s *Stager) arrive(id draw.SampleID) {
	source := s.copies.get(id).source
	s.setState(id, here, source)
	for _, w := range s.takeWaiting(id) {
		if w.part != nil && w.part.probed && source != FromStorage && source != FromFallback {
			s.reread(w.part, id)
		}
		s.got(w)
	}
}

// lose marks a coming sample as absent: it could not be read.
func (s *Stager) lose(id draw.SampleID, err error) {
	if s.store.cache.Resident(id) {
		s.store.cache.Remove(id)
	}
	s.setState(id, absent, FromLocal)
	for _, w := range s.takeWaiting(id) {
		s.giveUp(w, id, err)
	}
}

func (s *Stager) takeWaiting(id draw.SampleID) []waiter {
	w := s.waiting[id]
	delete(s.waiting, id)
	return w
}

func (s *Stager) got(w waiter) {
	if w.part != nil {
		w.part.missing--
		s.completed(w.part)
		s.tryDeliver(w.part)
		return
	}
	w.answer.missing--
	s.trySend(w.answer)
}

// giveUp makes w continue without the sample; with a nil err the client reads storage itself.
func (s *Stager) giveUp(w waiter, id draw.SampleID, err error) {
	s.copies.unpin(id)
	if w.part != nil {
		w.part.lane.heldBytes -= s.cfg.Size(id)
	}
	switch {
	case w.answer != nil:
		w.answer.gone[w.place] = true
	case err == nil:
		w.part.source[w.place] = NotHere
	default:
		w.part.source[w.place] = Unreadable
		if w.part.errs == nil {
			w.part.errs = map[int]error{}
		}
		w.part.errs[w.place] = err
	}
	s.got(w)
}

// onStarved lets parts that are due continue without the sample; the others wait for room.
func (s *Stager) onStarved(e Starved) {
	s.starved = append(s.starved, e.ID)
	s.makeRoom(0)
	s.relieve(e.ID)
}

func (s *Stager) relieve(id draw.SampleID) {
	var stay []waiter
	for _, w := range s.takeWaiting(id) {
		if w.part != nil && w.part.ticket == 0 {
			stay = append(stay, w)
			continue
		}
		s.giveUp(w, id, nil)
	}
	if stay != nil {
		s.waiting[id] = stay
	}
}

// onRoom retries fetches that found no room, and drops those that are no longer needed.
func (s *Stager) onRoom() {
	again := s.starved
	s.starved = nil
	for _, id := range again {
		if s.copies.get(id).pins == 0 && !s.store.cache.Resident(id) {
			s.setState(id, absent, FromLocal)
			continue
		}
		s.fetch(id, s.Demand(), s.copies.get(id).source)
	}
}

// onRecovered makes residents of the samples that this rank left in memory before its restart.
// Plans decide who owns them: those that others own are evicted first.
func (s *Stager) onRecovered(e Recovered) {
	for _, id := range e.IDs {
		if s.copies.get(id).state != absent {
			continue // it is here already
		}
		if s.store.cache.fits(s.cfg.Size(id)) {
			s.store.cache.Draw(Use{ID: id}, nobody)
		}
		s.setState(id, unchecked, FromLocal)
	}
}

// onChecked fetches a sample again if it was incomplete or damaged.
func (s *Stager) onChecked(e Checked) {
	if e.Whole {
		s.arrive(e.ID)
		return
	}
	s.fetch(e.ID, s.Demand(), FromStorage)
}

// onShrunk evicts the residents whose memory is removed, and then as many more as no longer fit.
// Samples in use are freed when they are released. None of them goes to the tier, since memory is
// short now.
func (s *Stager) onShrunk(e Shrunk) {
	for _, id := range e.IDs {
		if s.store.cache.Resident(id) {
			s.store.cache.Remove(id)
			s.settle(id)
		}
	}
	s.store.cache.Resize(e.CapacityBytes, s.settle)
}

// A policy that looks ahead decides when a batch's losses have become scores, not when the batch
// enters the window, because a sample's own loss predicts its next draw best. Until then a draw
// of an own sample pins the bytes that it found or brought in. Other policies decide when the batch
// enters the window, with the score of a sample's last training, as in their papers.

// undecided is a draw of an own sample in the window that the policy has not seen yet.
type undecided struct {
	position int64 // of its batch
	place    int32 // of the draw, in the current plan
	next     int32 // of the sample's next draw
	held     bool  // the sample's copy is pinned for it
}

// hold makes a draw of the current batch wait for its scores. If draws do not depend on scores, or
// the policy does not look ahead, the policy decides now.
func (l *lane) hold(u undecided) {
	id := l.cur.IDs[u.place]
	if u.held = l.stager.copies.get(id).state != absent; u.held {
		l.stager.copies.pin(id)
	}
	l.undecided = append(l.undecided, u)
	if l.cur.Sum == 0 || !l.stager.patient {
		l.decideUpTo(u.position)
	}
}

// decideUpTo presents the draws of all batches up to a position to the policy.
func (l *lane) decideUpTo(position int64) {
	n := 0
	for n < len(l.undecided) && l.undecided[n].position <= position {
		l.decide(l.undecided[n])
		n++
	}
	l.undecided = l.undecided[:copy(l.undecided, l.undecided[n:])]
}

func (l *lane) decide(u undecided) {
	id := l.cur.IDs[u.place]
	l.own.draw(int(u.place), u.next, l.stager.copies.get(id).state != absent, l.stager.settle)
	if u.held {
		l.stager.copies.unpin(id)
	}
	l.stager.settle(id)
}

// onScored applies new scores, and decides on the batches that they come from.
func (l *lane) onScored(e Scored) {
	l.own.take(e)
	if plan := l.plan(e.Epoch); plan != nil {
		l.decideUpTo(plan.position(e.Batch))
	}
}

// Queries between events

// Plan returns the plan of a lane's epoch, or nil.
func (s *Stager) Plan(lane, epoch int) *plan.Plan {
	if l := s.lane(lane); l != nil {
		if p := l.plan(epoch); p != nil {
			return p.Plan
		}
	}
	return nil
}

// PlansLeft returns how many plans of a lane were released since the lane was opened.
func (s *Stager) PlansLeft(lane int) int {
	if l := s.lane(lane); l != nil {
		return l.plansLeft
	}
	return 0
}

// PlannedHits returns the number of draws of a lane's epoch that were hits for this rank's policy,
// without those that are evaluated.
func (s *Stager) PlannedHits(lane, epoch int) (hits int) {
	l := s.lane(lane)
	if l == nil {
		return 0
	}
	for _, n := range l.own.hits {
		if n.epoch == epoch {
			hits += n.hits
		}
	}
	for _, u := range l.undecided {
		if l.cur.Epoch == epoch && !l.cur.Evaluated().Has(l.cur.BatchOf(int(u.place))) &&
			s.store.cache.Resident(l.cur.IDs[u.place]) {
			hits++
		}
	}
	return hits
}

// TierHits returns the number of draws of a lane's epoch, by local trainers and peers, that were
// served from the tier so far.
func (s *Stager) TierHits(lane, epoch int) int {
	if l := s.lane(lane); l != nil {
		return l.tierHits[epoch]
	}
	return 0
}

// Cache returns the partition, for reading.
func (s *Stager) Cache() *Cache { return s.store.cache }

// Ready returns the share of the local trainers' next samples, within the window, that is in
// memory; 1 if the window is empty.
func (s *Stager) Ready() float64 {
	all, missing := 0, 0
	for l := range s.open() {
		for _, p := range l.parts {
			all += len(p.ids)
			missing += p.missing
		}
	}
	if all == 0 {
		return 1
	}
	return float64(all-missing) / float64(all)
}

// Demand returns the largest need (Fetch.Need) that a local trainer waits or has waited for.
func (s *Stager) Demand() uint64 {
	furthest := int64(0)
	for l := range s.open() {
		furthest = max(furthest, l.offset+l.demand)
	}
	return uint64(furthest)
}

// WindowBytes returns the memory held by samples that are not residents.
func (s *Stager) WindowBytes() int64 { return s.windowBytes }
