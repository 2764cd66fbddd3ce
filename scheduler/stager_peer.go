package scheduler

// promises are the samples that peers will ask for: pinned from the moment their batch enters the window, so that
// they are still here when the question comes.
type promises struct {
	byKey map[promiseKey][]SampleID
	order []promiseAt // by position
}

type promiseKey struct{ peer, epoch, batch int }

type promiseAt struct {
	promiseKey
	position int64
}

// answer is a peer's question under way.
type answer struct {
	Asked
	gone    []bool // by place: absent
	missing int
}

type answerKey struct {
	peer   int
	ticket uint32
}

func (s *Stager) promise(key promiseKey, pos int64, id SampleID) {
	s.bring(id, pos)
	s.copies.pin(id)
	if s.promises.byKey[key] == nil {
		s.promises.order = append(s.promises.order, promiseAt{key, pos})
	}
	s.promises.byKey[key] = append(s.promises.byKey[key], id)
}

// keep ends a promise.
func (p *promises) keep(key promiseKey, unpin func(SampleID)) {
	ids := p.byKey[key]
	delete(p.byKey, key)
	for _, id := range ids {
		unpin(id)
	}
}

// expire ends the promises before position: whoever has not asked by then reads storage.
func (p *promises) expire(position int64, unpin func(SampleID)) {
	n := 0
	for n < len(p.order) && p.order[n].position < position {
		p.keep(p.order[n].promiseKey, unpin)
		n++
	}
	p.order = p.order[n:]
}

func (s *Stager) ask(peer, epoch, batch int, ids []SampleID) {
	s.lastAsk++
	a := &Ask{Peer: peer, Ticket: s.lastAsk, Epoch: epoch, Batch: batch, IDs: ids}
	s.asks[a.Ticket] = a
	s.emit(*a)
}

func (s *Stager) onReceived(e Received) {
	a := s.asks[e.Ticket]
	if a == nil {
		return
	}
	delete(s.asks, e.Ticket)
	for i, id := range a.IDs {
		switch e.Status[i] {
		case Absent:
			s.fetchInstead(id, FromStorage)
		case Staged:
			s.copies.setSource(id, FromStorage)
			s.arrive(id)
		default:
			s.arrive(id)
		}
	}
}

func (s *Stager) onPeerLost(e PeerLost) {
	a := s.asks[e.Ticket]
	if a == nil {
		return
	}
	delete(s.asks, e.Ticket)
	for _, id := range a.IDs {
		s.fetchInstead(id, FromFallback)
	}
}

// fetchInstead reads storage for a sample that a peer or the tier did not give.
func (s *Stager) fetchInstead(id SampleID, source Source) {
	s.fetch(id, uint64(max(s.demand, 0)), source)
}

// onAsked answers as soon as the window has reached the batch and the samples are here.
func (s *Stager) onAsked(e Asked) {
	if plan := s.plan(e.Epoch); plan != nil {
		s.asked = max(s.asked, plan.position(e.Batch))
	}
	s.early = append(s.early, e)
}

// reached reports whether a batch has entered the window, or never will because its epoch is over.
func (s *Stager) reached(epoch, batch int) bool {
	if s.cur == nil {
		return false
	}
	plan := s.plan(epoch)
	if plan == nil {
		return epoch < s.cur.Epoch
	}
	return plan.position(batch) < s.cur.position(s.batch)
}

// answerEarly takes up the questions whose batch has entered the window, or will never.
func (s *Stager) answerEarly() {
	rest := s.early[:0]
	for _, e := range s.early {
		if s.reached(e.Epoch, e.Batch) {
			s.take(e)
		} else {
			rest = append(rest, e)
		}
	}
	s.early = rest
}

func (s *Stager) take(e Asked) {
	a := &answer{Asked: e, gone: make([]bool, len(e.IDs))}
	s.answers[answerKey{e.Peer, e.Ticket}] = a
	for i, id := range e.IDs {
		if s.copies.get(id).state == absent {
			if !s.own.tier.has(id) {
				a.gone[i] = true
				continue
			}
			s.bring(id, max(s.demand, 0))
		}
		s.await(id, waiter{answer: a, place: i})
	}
	s.promises.keep(promiseKey{e.Peer, e.Epoch, e.Batch}, s.unpin)
	s.trySend(a)
}

func (s *Stager) trySend(a *answer) {
	if a.missing > 0 {
		return
	}
	status := make([]Status, len(a.IDs))
	for i, id := range a.IDs {
		switch {
		case a.gone[i]:
			status[i] = Absent
		case s.copies.get(id).source == FromStorage || s.copies.get(id).source == FromFallback:
			s.copies.setSource(id, FromLocal)
			status[i] = Staged
		case s.copies.get(id).source == fromTier:
			s.takeSource(id, a.Epoch)
			status[i] = Present
		default:
			status[i] = Present
		}
	}
	s.emit(Send{Peer: a.Peer, Ticket: a.Ticket, IDs: a.IDs, Status: status})
}

func (s *Stager) onSent(e Sent) {
	key := answerKey{e.Peer, e.Ticket}
	a := s.answers[key]
	if a == nil {
		return
	}
	delete(s.answers, key)
	for i, id := range a.IDs {
		if !a.gone[i] {
			s.unpin(id)
		}
	}
}
