package stager

import (
	"slices"

	"rankpool/scheduler/draw"
)

// promises are the samples that peers will request: they are pinned when their batch enters the
// window, so that they are still here when the request arrives.
type promises struct {
	byKey map[promiseKey][]draw.SampleID
	order []promiseAt // by position
}

type promiseKey struct{ peer, epoch, batch int }

type promiseAt struct {
	promiseKey
	position int64
}

// answer is a peer's request in progress.
type answer struct {
	Asked
	gone    []bool // by place: absent
	missing int
}

func (l *lane) promise(key promiseKey, pos int64, id draw.SampleID) {
	l.stager.bring(id, l.needOf(pos))
	l.heldBytes += l.stager.cfg.Size(id)
	l.stager.copies.pin(id)
	if l.promises.byKey[key] == nil {
		l.promises.order = append(l.promises.order, promiseAt{key, pos})
	}
	l.promises.byKey[key] = append(l.promises.byKey[key], id)
}

// keep ends a promise.
func (p *promises) keep(key promiseKey, unpin func(draw.SampleID)) {
	ids := p.byKey[key]
	delete(p.byKey, key)
	for _, id := range ids {
		unpin(id)
	}
}

// expire ends the promises before position: peers that have not requested them by then read
// storage.
func (p *promises) expire(position int64, unpin func(draw.SampleID)) {
	n := 0
	for n < len(p.order) && p.order[n].position < position {
		p.keep(p.order[n].promiseKey, unpin)
		n++
	}
	p.order = p.order[n:]
}

func (l *lane) ask(peer, epoch, batch int, ids []draw.SampleID) {
	l.stager.lastAsk++
	l.stager.asks[l.stager.lastAsk] = ids
	l.stager.emit(Ask{
		Lane: l.number, Peer: peer, Ticket: l.stager.lastAsk, Epoch: epoch, Batch: batch, IDs: ids,
	})
}

func (s *Stager) onReceived(e Received) {
	for i, id := range s.endAsk(e.Ticket) {
		if e.Status[i] == Absent {
			s.fetch(id, s.Demand(), FromStorage)
			continue
		}
		if e.Status[i] == Staged {
			s.copies.setSource(id, FromStorage)
		}
		s.arrive(id)
	}
}

func (s *Stager) onPeerLost(e PeerLost) {
	for _, id := range s.endAsk(e.Ticket) {
		s.fetch(id, s.Demand(), FromFallback)
	}
}

// endAsk forgets an ask and returns its samples; none if it has ended before.
func (s *Stager) endAsk(ticket uint32) []draw.SampleID {
	ids := s.asks[ticket]
	delete(s.asks, ticket)
	return ids
}

// onAsked answers once the window has reached the batch and the samples are here; for a closed
// lane, without waiting for a window.
func (s *Stager) onAsked(e Asked) {
	l := s.lane(e.Lane)
	if l == nil {
		s.take(e)
		return
	}
	if plan := l.plan(e.Epoch); plan != nil {
		l.asked = max(l.asked, plan.position(e.Batch))
	}
	l.early = append(l.early, e)
}

// reached reports whether a batch has entered the window, or never will because its epoch is over.
func (l *lane) reached(epoch, batch int) bool {
	if l.cur == nil {
		return false
	}
	plan := l.plan(epoch)
	if plan == nil {
		return epoch < l.cur.Epoch
	}
	return plan.position(batch) < l.cur.position(l.batch)
}

// answerEarly handles the early requests whose batch has entered the window or never will.
func (l *lane) answerEarly() {
	l.early = slices.DeleteFunc(l.early, func(e Asked) (answered bool) {
		if answered = l.reached(e.Epoch, e.Batch); answered {
			l.stager.take(e)
		}
		return answered
	})
}

func (s *Stager) take(e Asked) {
	a := &answer{Asked: e, gone: make([]bool, len(e.IDs))}
	s.answers[Sent{e.Peer, e.Ticket}] = a
	for i, id := range e.IDs {
		if s.copies.get(id).state == absent && !s.store.tier.has(id) && !s.cfg.OwnersRead {
			a.gone[i] = true
			continue
		}
		s.bring(id, s.Demand())
		s.await(id, waiter{answer: a, place: i})
	}
	if l := s.lane(e.Lane); l != nil {
		l.promises.keep(promiseKey{e.Peer, e.Epoch, e.Batch}, l.letGo)
	}
	s.trySend(a)
}

func (s *Stager) trySend(a *answer) {
	if a.missing > 0 {
		return
	}
	status := make([]Status, len(a.IDs)) // Absent
	for i, id := range a.IDs {
		if a.gone[i] {
			continue
		}
		status[i] = Present
		switch s.copies.get(id).source {
		case FromStorage, FromFallback:
			status[i] = Staged
			s.copies.setSource(id, FromLocal)
		case fromTier:
			s.takeSource(id, s.lane(a.Lane), a.Epoch)
		}
	}
	s.emit(Send{Peer: a.Peer, Ticket: a.Ticket, IDs: a.IDs, Status: status})
}

func (s *Stager) onSent(e Sent) {
	a := s.answers[e]
	if a == nil {
		return
	}
	delete(s.answers, e)
	for i, id := range a.IDs {
		if !a.gone[i] {
			s.unpin(id)
		}
	}
}
