package protocol

import (
	"maps"
	"math"
	"slices"

	"rankpool/scheduler/plan"
)

// Training moves from epoch to epoch. Two epochs are open at a time; a third replaces the older
// one. A single trainer cannot close an epoch that others need: it may move to an open epoch, or to
// the next one once no trainer here is left behind. (Trainers of other ranks delay it through their
// missing scores, if its plan needs scores.) To any other epoch trainers move together, once each
// has asked for it: all trainers or, if the sampler uses no scores, those of this rank, so that a
// silent rank does not delay the others.

// epochs are those that are open, the one that is wanted, and those that trainers are in.
type epochs struct {
	opened []int              // that training is or was in, the newest last, at most two
	plans  map[int]*plan.Plan // those of their plans that the stager still has
	want   int                // a requested epoch that is not open yet, or noEpoch
	from   int                // its first batch
	finish map[int]place      // by trainer: where it moved to last
	wishes map[int]place      // by trainer: where it waits to move to
}

func newEpochs() epochs {
	return epochs{
		plans: map[int]*plan.Plan{}, want: noEpoch, finish: map[int]place{}, wishes: map[int]place{},
	}
}

func (e *epochs) newest() int { return e.opened[len(e.opened)-1] }

// isNext reports whether training may move to epoch. locals are the trainers of this rank.
func (e *epochs) isNext(epoch int, locals []int) bool {
	n := len(e.opened)
	if n == 0 {
		return true // a new rank follows the first trainer
	}
	if epoch != e.opened[n-1]+1 {
		return false
	}
	return n == 1 || !slices.ContainsFunc(locals, func(t int) bool {
		at, ok := e.finish[t]
		return ok && at.epoch < e.opened[n-1]
	})
}

// mayMove reports whether a trainer may move to epoch on its own.
func (e *epochs) mayMove(epoch int, locals []int) bool {
	return e.plans[epoch] != nil || e.isNext(epoch, locals)
}

// wish records where a trainer waits to move to. all is true if each of the trainers that move
// together waits for the same epoch; they move to the returned place.
func (e *epochs) wish(trainer int, to place, together []int) (_ place, all bool) {
	e.wishes[trainer] = to
	for _, t := range together {
		w, ok := e.wishes[t]
		if !ok || w.epoch != to.epoch {
			return to, false
		}
		to.batch = min(to.batch, w.batch)
	}
	return to, true
}

// follow returns where the trainers of other ranks take a rank whose own do not move it. ok is
// false if it may not move, or need not.
func (e *epochs) follow(locals []int) (to place, ok bool) {
	if len(e.finish) == 0 {
		return place{}, false
	}
	next, newest := math.MaxInt, 0
	for _, at := range e.finish {
		next, newest = min(next, at.epoch), max(newest, at.epoch)
	}
	if n := len(e.opened); n > 0 {
		next = e.opened[n-1] + 1
	}
	return place{next, e.first(next)}, next <= newest && e.isNext(next, locals)
}

// first returns the batch at which training begins an epoch.
func (e *epochs) first(epoch int) int {
	first := math.MaxInt
	for _, at := range e.finish {
		if at.epoch == epoch {
			first = min(first, at.batch)
		}
	}
	if first == math.MaxInt { // trainers ahead have finished it
		return 0
	}
	return first
}

// idle reports whether no epoch is open, and none was requested.
func (e *epochs) idle() bool { return len(e.opened) == 0 && e.want == noEpoch }

// request makes epoch the one to open next, beginning at batch from. With begun, the stager exists.
func (e *epochs) request(epoch, from int, begun bool) {
	if begun && len(e.opened) > 0 && epoch == e.newest()+1 {
		from = 0 // the first trainer may be ahead of the others
	}
	if e.want != epoch {
		e.want, e.from = epoch, from
	}
	e.from = min(e.from, from)
}

// open opens an epoch, and closes all but the newest two.
func (e *epochs) open(p *plan.Plan) {
	e.opened = append(e.opened, p.Epoch)
	e.opened = e.opened[max(0, len(e.opened)-2):]
	e.plans[p.Epoch] = p
	maps.DeleteFunc(e.plans, func(epoch int, _ *plan.Plan) bool {
		return !slices.Contains(e.opened, epoch)
	})
}

// canonical returns the end of an epoch as the beginning of the next one.
func (e *epochs) canonical(at place) place {
	if plan := e.plans[at.epoch]; plan != nil && at.batch >= plan.Batches() {
		return place{at.epoch + 1, 0}
	}
	return at
}
