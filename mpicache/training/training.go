// Package training serves the trainings on a rank: it drives the coordinator of each (package
// scheduler), with the clients at the door, the other ranks, and files.
package training

import (
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/store"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// Store is what a training needs of the store of its data set.
type Store interface {
	// Locked runs f with the lock, and then what f has left for later.
	Locked(f func())
	// Later calls f after the store is unlocked: f may block or take long.
	Later(f func())
	// Open opens a lane, and reports whether there were lanes before.
	Open(lane int, world []int32, policy stager.Policy) (others bool)
	// Step passes an event to the stager.
	Step(e stager.Event)
	// Plan returns the plan of a lane's epoch, or nil.
	Plan(lane, epoch int) *plan.Plan
	// PlansLeft returns how many plans of a lane the stager has released.
	PlansLeft(lane int) int
	// Counts returns what the stager counts of a lane's epoch, of this rank and not of its trainers.
	Counts(lane, epoch int) stats.Counts
	// Closed reports whether the store reads nothing more.
	Closed() bool
}

// Training is one training on a data set, on this rank. The lock of its store protects everything
// in it; replies to clients are written after that is unlocked.
type Training struct {
	set   *Set
	rank  *Rank
	store Store
	data  *store.DataSet

	job        string        // "": the training without a name
	generation uint32        // how many of that name have ended before
	lane       int           // its number in the stager
	began      bool          // it has one
	ended      bool          // it is no longer served
	over       chan struct{} // closed when it has ended

	coordinator *protocol.Coordinator
	command     Obey
	requests    requests
	setup       *setup      // basis of plans and stager, once it has begun
	plans       plan.Config // what plans are made from
	// benefit measures what the cache is worth to it, once it has begun
	benefit *stager.Benefit
	outbox  outbox
	lists   map[int]*pieces // by trainer: those that come
	states  states
	epochs  epochs
	scores  importance

	seats map[int]*Seat // by trainer, of this node

	clients   map[Client]bool // that have opened it
	idleSince time.Time       // since when it has no process here; zero if it has one
	idle      bool            // it is idle, and rank 0 knows
	idleAt    map[int]bool    // rank 0: the ranks that have reported this

	due      map[due]bool // what GETs wait for
	plansHad int          // plans that the stager had released at the last look
}

func newTraining(set *Set, job string) *Training {
	s := &Training{
		set: set, rank: set.rank, store: set.store, data: set.data, job: job,
		over: make(chan struct{}), due: map[due]bool{}, seats: map[int]*Seat{},
		lists: map[int]*pieces{}, clients: map[Client]bool{}, idleAt: map[int]bool{},
		requests: requests{open: map[uint64]*request{}},
	}
	s.outbox.of, s.states.of, s.scores.of = s, s, s
	s.epochs = newEpochs(s)
	s.command = s.obey
	s.coordinator = protocol.New(s.coordination())
	return s
}

// leavePlans reports to the coordinator which plans the stager has released.
func (s *Training) leavePlans() {
	n := 0
	if s.began {
		n = s.store.PlansLeft(s.lane)
	}
	if n == s.plansHad {
		return
	}
	s.plansHad = n
	for _, epoch := range s.coordinator.Open() {
		if s.coordinator.Plan(epoch) != nil && s.store.Plan(s.lane, epoch) == nil {
			s.Coordinate(protocol.Left{Epoch: epoch})
		}
	}
}

// Status returns the training's progress. It takes the lock.
func (s *Training) Status() (status door.DataStatus) {
	s.store.Locked(func() { status = s.epochs.status() })
	return status
}

// Measure adds the training's state to st, and its totals to sum. It takes the lock.
func (s *Training) Measure(st *stats.Reading, sum *stats.Counts) {
	s.store.Locked(func() { s.epochs.measure(st, sum) })
}

// Refuse tells the trainers that are waiting for a plan to ask again later, and why. It locks the
// store.
func (s *Training) Refuse(why string) {
	s.store.Locked(func() { s.Coordinate(protocol.Hung{Why: why}) })
}

// Finish closes all epochs and waits for the last state to be written. It takes the lock.
func (s *Training) Finish() {
	saving := s.Finishing()
	s.scores.recording.Wait()
	if saving != nil {
		<-saving
	}
}

// Finishing closes all epochs. The channel that it returns is closed when the last state is
// written; nil: there is none. It takes the lock.
func (s *Training) Finishing() (saving <-chan struct{}) {
	s.store.Locked(func() {
		s.outbox.flush()
		s.epochs.closeAll()
		s.Coordinate(protocol.Finished{})
		saving = s.states.saving
	})
	return saving
}

// Save writes rank 0's current state file, unless it belongs to a checkpoint. The channel that it
// returns is closed when that is written; nil: there is nothing to write. It takes the lock.
func (s *Training) Save() (saving <-chan struct{}) {
	s.store.Locked(func() {
		s.Coordinate(protocol.Finished{})
		saving = s.states.saving
	})
	return saving
}

// AwaitStates returns when pending writes are on disk. It takes the lock.
func (s *Training) AwaitStates() { s.states.await() }

// Coordinator returns the coordinator, for whoever has the lock.
func (s *Training) Coordinator() *protocol.Coordinator { return s.coordinator }

// Wrap changes what carries out the coordinator's commands: simulated jobs plant faults there.
func (s *Training) Wrap(wrap func(c protocol.Command, obey Obey)) {
	obey := s.command
	s.command = func(c protocol.Command) { wrap(c, obey) }
}

// Obey carries out a command of the coordinator.
type Obey func(protocol.Command)

// Seats returns which processes the trainers of this node are, for whoever has the lock.
func (s *Training) Seats() map[int]*Seat { return s.seats }

// Over is closed when the training has ended.
func (s *Training) Over() <-chan struct{} { return s.over }

// Count returns what this rank counts of an open epoch. It takes the lock.
func (s *Training) Count(epoch int) (c *stats.Epoch) {
	s.store.Locked(func() { c = s.epochs.sum(epoch) })
	return c
}
