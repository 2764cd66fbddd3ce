package protocol

import (
	"fmt"
	"slices"
	"strings"

	"rankpool/scheduler/plan"
)

// With the sampler listed, trainers hand in what they draw, each its own part of an epoch. All
// ranks get all parts, and make the plan from them. A part may be handed in ahead, while the epoch
// before is trained: then the plan is made and its first samples are staged, but the epoch is not
// opened before every trainer has said that its part is final. An epoch is only a number: trainers
// that do not know the whole of theirs hand it in as several.

// lists are the parts that were handed in, by trainer, the newest last.
type lists [][]*list

// list is a trainer's part of an epoch.
type list struct {
	plan.List // the zero List once its epoch is open
	epoch     int
	life      joined // of the trainer that has handed it in
	final     bool
}

// open reports whether the epoch was opened with the part.
func (l *list) open() bool { return l.Counts == nil }

// listsKept is how many parts of a trainer are kept: of the epochs that are open, and the next.
const listsKept = 3

// take records a part.
func (l lists) take(trainer int, n *list) {
	known := l.of(trainer, n.epoch)
	if known != nil && slices.Equal(known.Counts, n.Counts) && slices.Equal(known.IDs, n.IDs) &&
		!known.open() {
		known.final, known.life = known.final || n.final, n.life
		return
	}
	others := slices.DeleteFunc(l[trainer], func(o *list) bool { return o == known })
	l[trainer] = append(others[max(0, len(others)-listsKept+1):], n)
}

// of returns a trainer's part of an epoch, or nil.
func (l lists) of(trainer, epoch int) *list {
	for _, known := range l[trainer] {
		if known.epoch == epoch {
			return known
		}
	}
	return nil
}

// whole returns the parts of all trainers, from which a plan is to be made; nil if one is missing
// or, for an epoch that begins, not final.
func (l lists) whole(epoch int, begins bool) (parts []*list) {
	for t := range l {
		part := l.of(t, epoch)
		if part == nil || part.open() || begins && !part.final {
			return nil
		}
		parts = append(parts, part)
	}
	return parts
}

// opened drops the ids of an epoch that was opened, and of those before.
func (l lists) opened(epoch int) {
	for t := range l {
		for _, part := range l[t] {
			if part.epoch <= epoch {
				part.List = plan.List{}
			}
		}
	}
}

// waits reports whether a trainer has handed in an epoch anew, and there is no plan of that yet.
func (l lists) waits(epoch int) bool {
	for t := range l {
		if part := l.of(t, epoch); part != nil && !part.open() {
			return true
		}
	}
	return false
}

// missing names the trainers whose part of an epoch is missing, or not final; "" if none is, or if
// trainers hand in nothing.
func (c *Coordinator) missing(epoch int) string {
	if _, whole := c.parts(epoch, true); whole || c.Plan(epoch) != nil && !c.lists.waits(epoch) {
		return ""
	}
	var names []string
	for t, parts := range c.lists {
		part := c.lists.of(t, epoch)
		switch {
		case part != nil && part.final && !part.open():
		case part != nil || len(parts) == 0:
			names = append(names, fmt.Sprint(t))
		default:
			newest := parts[len(parts)-1].epoch
			names = append(names, fmt.Sprintf("%d (its newest is epoch %d)", t, newest))
		}
	}
	return fmt.Sprintf("of %d trainers %d have not handed in epoch %d: RANK %s", len(c.lists),
		len(names), epoch, strings.Join(names[:min(len(names), mostNamed)], ", "))
}

// onListed takes a trainer's part of an epoch.
func (c *Coordinator) onListed(e Listed) {
	if !c.theirs(e.Trainer, e.Rank) {
		return
	}
	if e.Rank == c.cfg.Rank {
		c.tell(e)
	}
	known := c.lists.of(e.Trainer, e.Epoch)
	life := joined{}
	if t := c.agreed.trainings[e.Trainer]; t != nil {
		life = joined{life: t.Life, turn: t.Turn}
	}
	switch {
	case e.List == nil && known != nil:
		known.final = true
	case e.List == nil, known != nil && known.open() && known.life == life && c.Plan(e.Epoch) != nil:
		return // the trainer has lost its connection, and hands in again
	default:
		c.lists.take(e.Trainer, &list{List: *e.List, epoch: e.Epoch, life: life, final: e.Final})
	}
	if a := c.ahead; a != nil && a.epoch == e.Epoch &&
		!slices.Equal(a.parts, c.lists.whole(e.Epoch, false)) {
		c.ahead = nil
	}
	if c.Plan(e.Epoch) != nil && c.lists.whole(e.Epoch, true) != nil {
		c.epochs.request(e.Epoch, 0, c.begun) // all trainers begin it again
	}
	c.plan()
	c.answerPlans()
}

// Lists reports whether a trainer has handed in its part of an epoch.
func (c *Coordinator) Lists(trainer, epoch int) bool {
	return trainer < len(c.lists) && c.lists.of(trainer, epoch) != nil
}

// parts returns what the plan of an epoch is made from, if the trainers hand it in. ok is false
// while a part is missing.
func (c *Coordinator) parts(epoch int, begins bool) (parts []*list, ok bool) {
	if c.agreed.spec == nil || !c.agreed.spec.Listed() {
		return nil, true
	}
	parts = c.lists.whole(epoch, begins)
	return parts, parts != nil
}

// planLists returns parts as a plan needs them.
func planLists(parts []*list) (lists []plan.List) {
	for _, part := range parts {
		lists = append(lists, part.List)
	}
	return lists
}
