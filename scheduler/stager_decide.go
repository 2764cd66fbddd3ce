package scheduler

// What a policy that looks ahead keeps is decided when a batch's losses have become scores, not when it enters the window: a sample's own
// loss says most about its next draw. Until then a draw of an own sample holds the bytes that it found or brought in. Other policies
// are asked when the batch enters the window: they look for a sample with the score of its last training, as their papers have it.

// undecided is a draw of an own sample in the window, which has not passed the policy.
type undecided struct {
	position int64 // of its batch
	place    int32 // of the draw, in the current plan
	next     int32 // of the sample's next draw
	held     bool  // the sample's copy is pinned for it
}

// hold lets a draw of the current batch wait for its scores. Draws that do not depend on scores pass the policy now, and so do all draws
// when the policy does not look ahead.
func (s *Stager) hold(u undecided) {
	id := s.cur.IDs[u.place]
	if u.held = s.copies.get(id).state != absent; u.held {
		s.copies.pin(id)
	}
	s.undecided = append(s.undecided, u)
	if s.cur.total == 0 || !s.patient {
		s.decideUpTo(u.position)
	}
}

// decideUpTo passes the draws of all batches up to a position through the policy.
func (s *Stager) decideUpTo(position int64) {
	n := 0
	for n < len(s.undecided) && s.undecided[n].position <= position {
		s.decide(s.undecided[n])
		n++
	}
	s.undecided = s.undecided[:copy(s.undecided, s.undecided[n:])]
}

// decideFor does so, oldest first, for batches that the slowest trainer has asked for, until the window holds no more than bytes.
func (s *Stager) decideFor(bytes, slowest int64) {
	for len(s.undecided) > 0 && s.undecided[0].position < slowest && s.windowBytes > bytes {
		s.decideUpTo(s.undecided[0].position)
	}
}

func (s *Stager) decide(u undecided) {
	id := s.cur.IDs[u.place]
	s.own.draw(int(u.place), u.next, s.copies.get(id).state != absent, s.settle)
	if u.held {
		s.copies.unpin(id)
	}
	s.settle(id)
}

// onScored takes new scores, and decides on the batches that they come from.
func (s *Stager) onScored(e Scored) {
	s.own.take(e)
	if plan := s.plan(e.Epoch); plan != nil {
		s.decideUpTo(plan.position(e.Batch))
	}
}
