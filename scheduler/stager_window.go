package scheduler

import (
	"maps"
	"slices"
)

// part is what one local trainer consumes of one global batch.
type part struct {
	partKey
	position int64
	ids      []SampleID
	source   []Source // NotHere and Unreadable as soon as known, the rest at delivery
	errs     map[int]error
	missing  int    // samples that are coming
	ticket   uint64 // of the request that waits; 0: none
	lease    uint32
}

type partKey struct{ trainer, epoch, batch int }

// waiter is a place in a part or in an answer that waits for a sample.
type waiter struct {
	part   *part
	answer *answer
	place  int
}

// enter takes batch b of the current plan into the window.
func (s *Stager) enter(b int) {
	pos := s.cur.position(b)
	s.promises.expire(pos-2*aheadBatches, s.unpin)
	s.decideUpTo(pos - 2*aheadBatches)
	var wanted map[int][]SampleID // by owner
	for _, place := range s.cur.view.share(s.cur.Plan, s.cfg.Rank, b) {
		i := int(place)
		id, trainer := s.cur.IDs[i], int(s.cur.Consumer[i])
		owner, consumer := s.cur.Owner(i), int(s.cur.World[trainer])
		mine := consumer == s.cfg.Rank
		if owner == s.cfg.Rank {
			u := undecided{position: pos, place: place, next: s.own.reach(i)}
			if !mine && (s.copies.get(id).state != absent || s.own.wants(i, u.next)) {
				s.promise(promiseKey{consumer, s.cur.Epoch, b}, pos, id)
			}
			if mine {
				s.need(s.partOf(partKey{trainer, s.cur.Epoch, b}, pos), id, pos)
			}
			s.hold(u)
			continue
		}
		if !mine {
			continue
		}
		p := s.partOf(partKey{trainer, s.cur.Epoch, b}, pos)
		if s.copies.get(id).state == absent {
			if wanted == nil {
				wanted = map[int][]SampleID{}
			}
			wanted[owner] = append(wanted[owner], id)
			s.setState(id, coming, FromPeer)
		}
		s.need(p, id, pos)
	}
	for _, owner := range slices.Sorted(maps.Keys(wanted)) { // in order, so that a replay gives the same commands
		s.ask(owner, s.cur.Epoch, b, wanted[owner])
	}
	for _, t := range s.locals { // a trainer without draws in a partial batch gets an empty part
		s.partOf(partKey{t, s.cur.Epoch, b}, pos)
	}
}

func (s *Stager) partOf(key partKey, pos int64) *part {
	p := s.parts[key]
	if p == nil {
		p = &part{partKey: key, position: pos}
		s.parts[key] = p
	}
	return p
}

// need adds id to p and brings it in if it is neither here nor coming.
func (s *Stager) need(p *part, id SampleID, pos int64) {
	p.ids = append(p.ids, id)
	p.source = append(p.source, FromLocal)
	s.bring(id, pos)
	s.await(id, waiter{part: p, place: len(p.ids) - 1})
}

// bring has id fetched unless it is here or coming. A resident that is not here is one that could not be had before.
func (s *Stager) bring(id SampleID, pos int64) {
	if s.copies.get(id).state == absent {
		s.setState(id, coming, FromStorage)
		s.fetch(id, uint64(pos), FromStorage)
	}
}

// await pins id for w, and has w wait while id is coming.
func (s *Stager) await(id SampleID, w waiter) {
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

func (s *Stager) setState(id SampleID, state copyState, source Source) {
	c := s.copies.get(id)
	c.state, c.source = state, source
	s.copies.put(id, c)
	s.settle(id)
}

// settle frees a sample that nobody needs, or has it stored, and keeps windowBytes true.
func (s *Stager) settle(id SampleID) {
	c := s.copies.get(id)
	before := c
	resident := s.own.cache.Resident(id)
	if c.state == here && c.pins == 0 && !resident {
		if s.spill(id) {
			c.pins++ // until it is stored
		} else {
			c.state = absent
			s.emit(Free{id})
		}
	}
	if c.state == absent {
		s.own.tier.gone(id)
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

func (s *Stager) unpin(id SampleID) {
	s.copies.unpin(id)
	s.settle(id)
}

func (s *Stager) onFetched(e Fetched) {
	if e.Err != nil {
		s.lose(e.ID, e.Err)
		return
	}
	s.arrive(e.ID)
}

// arrive makes a coming sample be here and lets go on who waits for it.
func (s *Stager) arrive(id SampleID) {
	s.copies.setState(id, here)
	for _, w := range s.takeWaiting(id) {
		s.got(w)
	}
	s.settle(id)
}

// lose makes a coming sample absent: it cannot be read.
func (s *Stager) lose(id SampleID, err error) {
	s.copies.setState(id, absent)
	if s.own.cache.Resident(id) {
		s.own.cache.Remove(id)
	}
	for _, w := range s.takeWaiting(id) {
		s.giveUp(w, id, err)
	}
	s.settle(id)
}

func (s *Stager) takeWaiting(id SampleID) []waiter {
	w := s.waiting[id]
	delete(s.waiting, id)
	return w
}

func (s *Stager) got(w waiter) {
	if w.part != nil {
		w.part.missing--
		s.tryDeliver(w.part)
		return
	}
	w.answer.missing--
	s.trySend(w.answer)
}

// giveUp lets w go on without the sample; with a nil err the client reads storage itself.
func (s *Stager) giveUp(w waiter, id SampleID, err error) {
	s.copies.unpin(id)
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

// onStarved: parts that are due go on without the sample, the others wait for room.
func (s *Stager) onStarved(e Starved) {
	s.starved = append(s.starved, e.ID)
	if slowest, local := s.slowest(); local {
		s.decideFor(0, slowest)
	}
	s.relieve(e.ID)
}

func (s *Stager) relieve(id SampleID) {
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

// onRoom tries again what found no room, and forgets what nobody needs any more.
func (s *Stager) onRoom() {
	again := s.starved
	s.starved = nil
	for _, id := range again {
		if s.copies.get(id).pins == 0 && !s.own.cache.Resident(id) {
			s.setState(id, absent, FromLocal)
			continue
		}
		s.fetch(id, uint64(max(s.demand, 0)), s.copies.get(id).source)
	}
}
