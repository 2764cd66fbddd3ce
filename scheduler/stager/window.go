package stager

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"rankpool/scheduler/draw"
)

// aheadBatches bounds the window in batches. 64 batches of a tenth of a second hide storage that
// takes seconds.
const aheadBatches = 64

// aheadOf returns how many batches of an epoch the window may run ahead of the slowest trainer: a
// thirty-second of a short epoch, since a batch that enters the window is judged by scores that
// lack the losses of the batches in the window. On losses recorded from training (8,000 samples,
// batch 64, weighted) a quarter costs 0.7 % of the hits, a sixteenth 0.4 %, a thirty-second 0.3 %,
// two batches 0.25 %.
func aheadOf(batches int) int { return max(1, min(aheadBatches, batches/32)) }

// part is what one local trainer consumes of one global batch.
type part struct {
	lane *lane
	partKey
	position int64
	ids      []draw.SampleID
	source   []Source // NotHere and Unreadable as soon as known, the rest at delivery
	errs     map[int]error
	missing  int    // samples that are coming, and reads for a probe
	probed   bool   // its samples that are in memory are read from storage, too
	timed    bool   // Timed is sent when it is complete
	ticket   uint64 // of the waiting request; 0: none
	lease    uint32
}

type partKey struct{ trainer, epoch, batch int }

func (p *part) compare(q *part) int {
	return cmp.Or(cmp.Compare(p.position, q.position), cmp.Compare(p.trainer, q.trainer))
}

// waiter is an entry of a part or of an answer that waits for a sample.
type waiter struct {
	part   *part
	answer *answer
	place  int
}

// advance admits batches to the window while they are demanded or there is room, one of each lane
// in turn.
func (s *Stager) advance() {
	for more := true; more; {
		more = false
		for l := range s.open() {
			more = l.advance() || more
		}
	}
	for l := range s.open() {
		l.answerEarly()
	}
}

// advance admits the next batch of a lane to the window, and reports whether it did.
func (l *lane) advance() bool {
	for l.cur != nil && l.batch >= l.cur.Batches() {
		next := l.after(l.cur)
		if next == nil {
			return false
		}
		l.startEpoch(next)
	}
	if l.cur == nil || !l.mayEnter() {
		return false
	}
	l.enter(l.batch)
	l.batch++
	return true
}

func (l *lane) mayEnter() bool {
	pos := l.cur.position(l.batch)
	if pos <= l.demand {
		return true
	}
	slowest, local := l.slowest()
	if local && pos > slowest+int64(aheadOf(l.cur.Batches())) {
		return false
	}
	if pos <= l.asked {
		return true
	}
	if !local {
		return false
	}
	need := l.batchBytes()
	l.stager.makeRoom(l.stager.cfg.WindowBytes - need)
	return l.stager.windowBytes+need <= l.stager.cfg.WindowBytes &&
		l.heldBytes+need <= l.shareOfWindow()
}

// slowest returns the position of the slowest local trainer; before its first request a trainer is
// at the beginning of the oldest plan. local is false if no trainer is on this rank.
func (l *lane) slowest() (pos int64, local bool) {
	pos = math.MaxInt64
	for _, t := range l.locals {
		pos = min(pos, max(l.progress[t], l.plans[0].position(l.plans[0].from)-1))
	}
	return pos, len(l.locals) > 0
}

// batchBytes estimates how many bytes a batch adds to the window: this rank's share of the draws,
// at the mean size of the samples in it.
func (l *lane) batchBytes() int64 {
	lo, _ := l.cur.Range(l.batch)
	share := (l.cur.Batch + l.stager.cfg.Ranks - 1) / l.stager.cfg.Ranks
	return int64(share) * l.stager.cfg.Size(l.cur.IDs[lo])
}

// enter admits batch b of the current plan to the window.
func (l *lane) enter(b int) {
	pos := l.cur.position(b)
	lo, hi := l.cur.Range(b)
	l.unpack(lo, hi)
	l.promises.expire(pos-2*aheadBatches, l.letGo)
	l.decideUpTo(pos - 2*aheadBatches)
	var wanted map[int][]draw.SampleID // by owner
	for _, place := range l.cur.View.Share(l.cur.Plan, l.stager.cfg.Rank, b) {
		i := int(place)
		id, trainer := l.cur.IDs[i], int(l.cur.Consumer[i])
		owner, consumer := l.cur.Owner(i), int(l.cur.World[trainer])
		mine := consumer == l.stager.cfg.Rank
		if owner == l.stager.cfg.Rank {
			u := undecided{position: pos, place: place, next: l.own.reach(i)}
			if !mine && (l.stager.copies.get(id).state != absent || l.stager.cfg.OwnersRead ||
				l.own.wants(i, u.next)) {
				l.promise(promiseKey{consumer, l.cur.Epoch, b}, pos, id)
			}
			if mine {
				l.need(l.partOf(partKey{trainer, l.cur.Epoch, b}, pos), id, pos)
			}
			l.hold(u)
			continue
		}
		if !mine {
			continue
		}
		p := l.partOf(partKey{trainer, l.cur.Epoch, b}, pos)
		if l.stager.copies.get(id).state == absent {
			if wanted == nil {
				wanted = map[int][]draw.SampleID{}
			}
			wanted[owner] = append(wanted[owner], id)
			l.stager.setState(id, coming, FromPeer)
		}
		l.need(p, id, pos)
	}
	// in order, so that a replay gives the same commands
	for _, owner := range slices.Sorted(maps.Keys(wanted)) {
		l.ask(owner, l.cur.Epoch, b, wanted[owner])
	}
	for _, t := range l.locals { // a trainer without draws in a partial batch gets an empty part
		p := l.partOf(partKey{t, l.cur.Epoch, b}, pos)
		p.timed = l.cur.probe.times(b)
		l.stager.completed(p)
	}
	l.stager.store.entered(&l.own, lo, hi)
}

// partOf returns a part, which is new if there is none yet.
func (l *lane) partOf(key partKey, pos int64) *part {
	if l.recent != nil && l.recent.partKey == key {
		return l.recent
	}
	p := l.parts[key]
	if p == nil {
		p = &part{lane: l, partKey: key, position: pos}
		if plan := l.plan(key.epoch); plan != nil {
			p.probed = plan.probe.rereads(key.batch)
			lo, hi := plan.Range(key.batch)
			samples := min((plan.Batch+len(plan.World)-1)/len(plan.World), hi-lo)
			p.ids, p.source = make([]draw.SampleID, 0, samples), make([]Source, 0, samples)
		}
		l.parts[key] = p
	}
	l.recent = p
	return p
}

// leave removes p from its lane's parts.
func (p *part) leave() {
	if p.lane.parts[p.partKey] == p {
		delete(p.lane.parts, p.partKey)
	}
	if p.lane.recent == p {
		p.lane.recent = nil
	}
}

// need adds id to p and brings it in unless it is here or coming.
func (l *lane) need(p *part, id draw.SampleID, pos int64) {
	p.ids = append(p.ids, id)
	p.source = append(p.source, FromLocal)
	l.stager.bring(id, l.needOf(pos))
	l.heldBytes += l.stager.cfg.Size(id)
	l.stager.await(id, waiter{part: p, place: len(p.ids) - 1})
	if p.probed && l.stager.copies.get(id).state == here && l.stager.store.cache.Resident(id) {
		l.stager.reread(p, id)
	}
}

// bring fetches id unless it is here or coming, and requests a Check if it is unchecked.
func (s *Stager) bring(id draw.SampleID, need uint64) {
	switch s.copies.get(id).state {
	case absent:
		s.setState(id, coming, FromStorage)
		s.fetch(id, need, FromStorage)
	case unchecked:
		s.setState(id, coming, FromLocal)
		s.emit(Check{ID: id, Need: need})
	}
}

// await pins id for w, and makes w wait while id is coming.
func (s *Stager) await(id draw.SampleID, w waiter) {
	s.copies.pin(id)
	if s.copies.get(id).state == here {
		return
	}
	if w.part != nil {
		w.part.missing++
	} else {
		w.answer.missing++
	}
	s.waiting[id] = append(s.waiting[id], w)
}
