package simulator

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
	"rankpool/scheduler/systems"
)

// stagerRanks are the stagers of all ranks, with storage, peers and tiers that respond at once and
// without faults.
type stagerRanks struct {
	setup *setup
	ranks []*stagerRank
	todo  []func()
	done  int // of todo
	// commands is a buffer for those of the event that is handled.
	commands []stager.Command

	// fetched is called for each read of storage, reread (may be nil) for each of a sample in memory,
	// asked (may be nil) for each request to a peer, and
	// drew for each draw of a rank's own sample.
	fetched func(id draw.SampleID, rank, position int)
	reread  func()
	asked   func(rank int, c stager.Ask)
	drew    func(rank, lane, epoch, place int, outcome stager.Outcome)

	tierReads int64
}

// stagerRank is one rank's stager, and what its trainers got last.
type stagerRank struct {
	all       *stagerRanks
	number    int
	stager    *stager.Stager
	delivered []stager.Deliver // to its trainers
	scored    []draw.SampleID  // under way
}

// denseRanks is the largest number of ranks that may each have tables as long as the data set.
const denseRanks = 16

// make creates the stagers. Their lane 0 has trainers on the ranks of world.
func (a *stagerRanks) make(world []int32) error {
	s := a.setup
	share := s.totalBytes / int64(s.Ranks)
	for number := range s.Ranks {
		policy, err := systems.NewPolicy(s.policy, systems.PolicyConfig{
			Seed: s.Seed, Values: s.Values,
		})
		if err != nil {
			return err
		}
		r := &stagerRank{all: a, number: number}
		r.stager = stager.New(stager.Config{
			Rank: number, Ranks: s.Ranks, World: world, Samples: s.held(),
			Policy: policy, Size: s.size, CapacityBytes: s.part(number),
			TierBytes: s.tierPart(number), Sparse: s.Ranks > denseRanks,
			WindowBytes: max(share/windowShare, 4*s.totalBytes/int64(s.held())),
			Drew: func(lane, epoch, place int, o stager.Outcome) {
				a.drew(number, lane, epoch, place, o)
			},
		})
		a.ranks = append(a.ranks, r)
	}
	return nil
}

func (a *stagerRanks) later(f func()) { a.todo = append(a.todo, f) }

// settle completes all pending operations, in the order in which they began.
func (a *stagerRanks) settle() {
	for a.done < len(a.todo) {
		next := a.todo[a.done]
		a.todo[a.done] = nil
		a.done++
		next()
	}
	a.todo, a.done = a.todo[:0], 0
}

// step passes an event to all ranks.
func (a *stagerRanks) step(e stager.Event) {
	for _, r := range a.ranks {
		r.step(e)
		a.settle()
	}
}

// step passes an event to the stager and executes its commands.
func (r *stagerRank) step(e stager.Event) {
	a := r.all
	a.commands = r.stager.Step(e, a.commands[:0])
	for _, c := range a.commands {
		switch c := c.(type) {
		case stager.Fetch:
			a.fetched(c.ID, r.number, int(c.Need))
			a.later(func() { r.step(stager.Fetched{ID: c.ID}) })
		case stager.Read:
			if a.reread != nil {
				a.reread()
			}
			a.later(func() { r.step(stager.Reread{ID: c.ID}) })
		case stager.Store:
			a.later(func() { r.step(stager.Stored{ID: c.ID}) })
		case stager.Recall:
			a.tierReads++
			a.later(func() { r.step(stager.Recalled{ID: c.ID}) })
		case stager.Ask:
			if a.asked != nil {
				a.asked(r.number, c)
			}
			a.later(func() {
				a.ranks[c.Peer].step(stager.Asked{
					Lane: c.Lane, Peer: r.number, Ticket: c.Ticket, Epoch: c.Epoch, Batch: c.Batch,
					IDs: c.IDs,
				})
			})
		case stager.Send:
			a.later(func() {
				r.step(stager.Sent{Peer: c.Peer, Ticket: c.Ticket})
				a.ranks[c.Peer].step(stager.Received{Ticket: c.Ticket, Status: c.Status})
			})
		case stager.Deliver:
			r.delivered = append(r.delivered, c)
		}
	}
}

// batch makes the trainers of a lane, on the ranks of world, take a global batch. It calls found
// for each delivery.
func (a *stagerRanks) batch(
	world []int32, lane, epoch, batch int, found func(stager.Deliver),
) {
	for t, r := range world {
		a.ranks[r].step(stager.Requested{
			Lane: lane, Trainer: t, Epoch: epoch, Batch: batch, Ticket: 1 + uint64(t),
		})
	}
	a.settle()
	for _, r := range a.ranks {
		r.trained(found)
	}
	a.settle()
}

// trained calls found for each delivery, and releases it.
func (r *stagerRank) trained(found func(stager.Deliver)) {
	for _, d := range r.delivered {
		found(d)
		r.step(stager.Released{Lease: d.Lease})
	}
	r.delivered = r.delivered[:0]
}
