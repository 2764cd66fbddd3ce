package training

import (
	"slices"

	"rankpool/mpicache/door"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// pendingGet is a GET that waits for its batch.
type pendingGet struct {
	of     *Training
	client Client
	ticket uint32
	due    due
}

// due is a trainer's part of a batch, which one GET at a time waits for.
type due struct{ trainer, epoch, batch int }

// Get answers GET. A rank that has no plan for the epoch replies so at once, so that the client
// reads storage; meanwhile it makes the plan, if that is the next one.
func (s *Training) Get(c Client, ticket uint32, g door.Get) (err error) {
	s.store.Locked(func() { err = s.admit(c, ticket, g) })
	return err
}

// admit passes a GET to the stager, or returns why the client does not get the batch.
func (s *Training) admit(c Client, ticket uint32, g door.Get) error {
	part := due{int(c.ID().Trainer), int(g.Epoch), int(g.Batch)}
	if err := s.checkGet(c, part); err != nil {
		return err
	}
	if err := s.sit(c, false); err != nil {
		return err
	}
	if s.coordinator.Plan(part.epoch) == nil ||
		!s.coordinator.Has(part.trainer, s.rank.Transport.Rank()) {
		s.Coordinate(protocol.BatchWanted{Epoch: part.epoch, Batch: part.batch})
		return door.NotReady("this rank has no plan for that epoch yet")
	}
	s.epochs.count(part.epoch)
	t := s.rank.tickets.Add(1)
	c.Waits(t, s.set)
	s.set.gets[t], s.due[part] = pendingGet{s, c, ticket, part}, true
	s.store.Step(stager.Requested{
		Lane: s.lane, Trainer: part.trainer, Epoch: part.epoch, Batch: part.batch, Ticket: t,
	})
	return nil
}

// checkGet returns an error unless the training has that batch, and the client may wait for it.
func (s *Training) checkGet(c Client, part due) error {
	if err := s.checkPlace(uint32(part.epoch), uint32(part.batch)); err != nil {
		return err
	}
	gets, leases := c.Holds()
	plan := s.coordinator.Plan(part.epoch)
	switch {
	case gets >= maxGets:
		return door.Broken("GET, where %d of this connection wait", gets)
	case s.coordinator.Conflict() != nil:
		return door.Refuse("%s", s.coordinator.Conflict())
	case plan != nil && part.batch >= plan.Batches():
		return door.Refuse("epoch %d has %d batches: batch %d does not exist", part.epoch, plan.Batches(),
			part.batch)
	case s.due[part]:
		return door.NotReady("the same batch was requested before and is still being read")
	case leases >= door.MaxLeases:
		return door.NotReady("this connection has %d leases: release some batches", leases)
	}
	return nil
}

// take returns a GET that waits no more, if it has waited.
func (s *Set) take(ticket uint64) (g pendingGet, ok bool) {
	if g, ok = s.gets[ticket]; ok {
		delete(s.gets, ticket)
		delete(g.of.due, g.due)
	}
	return g, ok
}

// Withdraw ends a GET whose client is gone.
func (s *Set) Withdraw(ticket uint64) {
	s.store.Locked(func() {
		s.take(ticket)
		s.store.Step(stager.Withdrawn{Ticket: ticket})
	})
}

// Release ends a lease.
func (s *Set) Release(lease uint32) {
	s.store.Locked(func() { s.store.Step(stager.Released{Lease: lease}) })
}

// Deliver implements store.Trainings.
func (s *Set) Deliver(c stager.Deliver) bool {
	g, waits := s.take(c.Ticket)
	if !waits {
		return false
	}
	lease, here := g.client.Lease(s, c.Lease, c.Ticket)
	if !here {
		return false
	}
	entries := slices.Grow(s.batch[:0], len(c.IDs))[:len(c.IDs)]
	s.batch = entries
	var places []int // in the plan, where a draw may be served by another sample
	plan := s.store.Plan(g.of.lane, g.due.epoch)
	if plan != nil && plan.Chosen() {
		places = slices.Collect(plan.Places(g.due.batch, g.due.trainer))
	}
	for i, id := range c.IDs {
		entries[i] = door.BatchEntry{
			ID: uint32(id), Label: uint32(s.data.Label(id)), Length: uint32(s.data.Size(id)),
			Source:     c.Source[i],
			Substitute: i < len(places) && plan.Substituted(places[i]),
		}
		if c.Source[i] != stager.NotHere && c.Source[i] != stager.Unreadable {
			entries[i].Offset = uint64(s.store.Place(id))
		}
	}
	frame := door.AppendBatch(make([]byte, 0, 64+32*len(entries)), g.ticket, lease, entries, c.Errs)
	s.store.Reply(g.client, frame)
	return true
}
