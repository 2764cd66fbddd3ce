package mpicache

import (
	"math"
	"slices"
)

// A training goes from epoch to epoch together: two are open at a time, and a third takes the place of the older one.
// No trainer can do that to the others: it goes to an epoch that is open, or to the one after, once no trainer here is
// left behind (those of other ranks hold it up by the scores that are missing, if it is made of scores); to any other
// epoch only all of them can go, when each has asked for it: without scores all of this rank, since a rank that is
// silent is not waited for.

// place is a batch of an epoch.
type place struct{ epoch, batch int }

// isNext reports whether training may go on to epoch.
func (s *stream) isNext(epoch int) bool {
	p := &s.planner
	n := len(p.opened)
	if n == 0 {
		return true // a rank that has just begun follows who comes first
	}
	if epoch != p.opened[n-1]+1 {
		return false
	}
	for _, t := range s.agreed.locals(s.node.cfg.Transport.Rank()) {
		if at, ok := p.finish[t]; ok && n > 1 && at.epoch < p.opened[n-1] {
			return false
		}
	}
	return true
}

// move takes a trainer here to an epoch, from a batch on, and tells the other ranks. Where it may not go yet, it waits.
func (s *stream) move(trainer, epoch, batch int) {
	p := &s.planner
	if !s.knows(epoch) && !s.isNext(epoch) {
		s.outRecord(recordWish, trainer, epoch, batch, nil)
		s.flushReports()
		s.wish(trainer, place{epoch, batch})
		return
	}
	delete(p.wishes, trainer)
	s.outRecord(recordFinish, trainer, epoch, batch, nil)
	s.flushReports()
	s.finishEpochs(trainer, place{epoch, batch})
	s.want(epoch, batch)
	s.grant()
}

// wish notes where a trainer wants to go, and takes all there when they all want to.
func (s *stream) wish(trainer int, to place) {
	p := &s.planner
	p.wishes[trainer] = to
	for t, rank := range s.agreed.world {
		if int(rank) != s.node.cfg.Transport.Rank() && s.stager != nil && !p.weighted() {
			continue
		}
		w, ok := p.wishes[t]
		if !ok || w.epoch != to.epoch {
			return
		}
		to.batch = min(to.batch, w.batch)
	}
	for t := range p.wishes {
		s.finishEpochs(t, to)
	}
	clear(p.wishes)
	if !s.knows(to.epoch) {
		s.nextGeneration()
	}
	s.want(to.epoch, to.batch)
}

// grant has the trainers here go where they want to, if they may now. A rank whose trainers have nothing to ask for
// follows the others.
func (s *stream) grant() {
	p, locals := &s.planner, s.agreed.locals(s.node.cfg.Transport.Rank())
	for _, t := range locals {
		if to, ok := p.wishes[t]; ok && (s.knows(to.epoch) || s.isNext(to.epoch)) {
			s.move(t, to.epoch, to.batch)
		}
	}
	if s.stager == nil || len(p.finish) == 0 || len(locals) > 0 && !s.startedAgain(locals) { // before, a trainer here may yet open
		return
	}
	next, newest := math.MaxInt, 0
	for _, at := range p.finish {
		next, newest = min(next, at.epoch), max(newest, at.epoch)
	}
	if n := len(p.opened); n > 0 {
		next = p.opened[n-1] + 1
	}
	if next <= newest && s.isNext(next) {
		s.want(next, p.first(next))
	}
}

// startedAgain reports whether this rank has no plan although its trainers have had one: they may be waiting for the
// trainers of other ranks, which get no plan before this rank has made it too.
func (s *stream) startedAgain(locals []int) bool {
	return len(s.planner.opened) == 0 && s.planner.want == noEpoch && !slices.ContainsFunc(locals, func(t int) bool {
		training := s.agreed.trainings[t]
		return training == nil || len(training.Planned) == 0
	})
}

// first is the batch that training begins an epoch at.
func (p *planner) first(epoch int) int {
	first := math.MaxInt
	for _, at := range p.finish {
		if at.epoch == epoch {
			first = min(first, at.batch)
		}
	}
	if first == math.MaxInt { // those who are ahead have been through it
		return 0
	}
	return first
}
