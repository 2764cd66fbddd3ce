package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// onRequested delivers a part, now or when it is complete. A batch that the window has not reached enters it; one
// that it has passed is brought in by itself.
func (s *Stager) onRequested(e Requested) {
	plan := s.plan(e.Epoch)
	if plan == nil || e.Batch >= plan.Batches() {
		s.emit(Deliver{Ticket: e.Ticket})
		return
	}
	pos := plan.position(e.Batch)
	if plan.base > s.cur.base || plan == s.cur && e.Batch > s.batch+aheadBatches {
		s.jump(plan, e.Batch)
	}
	s.demand = max(s.demand, pos)
	if s.progress[e.Trainer] < plan.base {
		s.expireParts(e.Trainer, plan.base)
	}
	s.progress[e.Trainer] = max(s.progress[e.Trainer], pos)
	s.advance()
	key := partKey{e.Trainer, e.Epoch, e.Batch}
	p := s.parts[key]
	if p == nil {
		p = s.partOf(key, pos)
		for _, id := range plan.Part(nil, e.Batch, e.Trainer) {
			s.need(p, id, pos)
		}
	}
	p.ticket = e.Ticket
	s.byTicket[e.Ticket] = p
	for _, id := range s.starved {
		s.relieve(id)
	}
	s.tryDeliver(p)
}

// jump moves the window's end to a batch far ahead: training left an epoch early, or began in the middle of one.
func (s *Stager) jump(plan *planned, batch int) {
	if plan != s.cur {
		if s.after(s.cur) == plan && s.batch >= s.cur.Batches() {
			return // the ordinary end of an epoch: advance does it
		}
		s.startEpoch(plan)
	}
	if batch <= s.batch+aheadBatches {
		return
	}
	s.decideUpTo(math.MaxInt64)
	for ; s.batch < batch; s.batch++ {
		lo, hi := plan.Range(s.batch)
		for i := lo; i < hi; i++ {
			if plan.Owner(i) == s.cfg.Rank {
				s.own.reach(i)
			}
		}
	}
}

// expireParts forgets what a trainer left behind in earlier epochs without asking for it.
func (s *Stager) expireParts(trainer int, base int64) {
	var old []*part
	for key, p := range s.parts {
		if key.trainer == trainer && p.position < base && p.ticket == 0 {
			old = append(old, p)
		}
	}
	slices.SortFunc(old, func(a, b *part) int { return cmp.Compare(a.position, b.position) }) // so that a replay frees in the same order
	for _, p := range old {
		s.drop(p)
	}
}

// drop unpins what a part holds and takes it out of all lists.
func (s *Stager) drop(p *part) {
	delete(s.parts, p.partKey)
	for _, id := range p.ids {
		rest := s.waiting[id][:0]
		for _, w := range s.waiting[id] {
			if w.part != p {
				rest = append(rest, w)
			}
		}
		if len(rest) == 0 {
			delete(s.waiting, id)
		} else {
			s.waiting[id] = rest
		}
	}
	s.unpinPart(p)
}

// unpinPart ends the part's hold on the samples that it has or waits for.
func (s *Stager) unpinPart(p *part) {
	for i, id := range p.ids {
		if p.source[i] != NotHere && p.source[i] != Unreadable {
			s.unpin(id)
		}
	}
}

func (s *Stager) tryDeliver(p *part) {
	if p.ticket == 0 || p.missing > 0 || p.lease != 0 {
		return
	}
	for i, id := range p.ids {
		if p.source[i] == FromLocal {
			p.source[i] = s.takeSource(id, p.epoch)
		}
	}
	s.lastLease++
	p.lease = s.lastLease
	delete(s.parts, p.partKey)
	delete(s.byTicket, p.ticket)
	s.leases[p.lease] = p
	s.emit(Deliver{Ticket: p.ticket, Lease: p.lease, IDs: p.ids, Source: p.source, Errs: p.errs})
}

func (s *Stager) onReleased(e Released) {
	p := s.leases[e.Lease]
	if p == nil {
		return
	}
	delete(s.leases, e.Lease)
	s.unpinPart(p)
}
