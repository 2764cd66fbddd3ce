package training

import (
	"encoding/binary"
	"iter"
	"sync/atomic"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/store"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/systems"
)

var le = binary.LittleEndian

// Config is what the trainings of a rank depend on, besides its stores.
type Config struct {
	System     *systems.System // what the ranks run
	Policy     string
	Options    systems.Values // of the policy's and the sampler's system
	Scorer     string         // makes scores of reports; "": the sampler's own
	Assignment plan.Assignment
	Dir        string // this rank's folder
	StatePath  string // where rank 0 saves importance; "": nowhere
	// StateOptional lets a training begin with whatever scores exist if the state file is not the one
	// that it needs.
	StateOptional bool
	// JobIdle is how long a training with a job name may have no process on any rank before it ends;
	// 0: ten seconds.
	JobIdle   time.Duration
	Record    func(record any) // called on rank 0 with each line of the run log
	NodeEvery time.Duration    // 0: the run log has no lines about importance
	// Tidy, if not nil, is called before, while and after a plan is made, which needs the most memory
	// and leaves the most garbage. For small plans it is called only now and then.
	Tidy func()

	// ConnsOf returns the open connections of a trainer's family.
	ConnsOf func(trainer int, family uint64) []Client
	// Counted is called with this rank's counts of an epoch, on rank 0 with other ranks' counts, too.
	// ranks are those with trainers.
	Counted func(from int, key Key, ranks []int32, c *stats.Epoch)
	// Measures reports whether to measure the benefit of trainings now. There are n of them.
	Measures func(trainings int) bool
	// Divide is called when memory should be divided again.
	Divide func()
}

// Rank is what the trainings of a rank share.
type Rank struct {
	*store.Rank
	Config
	Started time.Time
	Sets    []*Set // by data set

	seatsChanged atomic.Bool  // the list of trainers must be written
	lanes        atomic.Int32 // trainings that have begun and not ended
	tickets      atomic.Uint64
	planned      atomic.Int64 // samples planned since Tidy was called; 0: it never was
}

// NewRank returns a rank without trainings, which has a store for each data set.
func NewRank(rank *store.Rank, cfg Config, data []store.DataSet) *Rank {
	r := &Rank{Rank: rank, Config: cfg, Started: rank.Now()}
	for i := range data {
		r.Sets = append(r.Sets, newSet(r, i, &data[i]))
	}
	return r
}

// All returns the trainings on all data sets. It takes their locks.
func (r *Rank) All() (all []*Training) {
	for _, s := range r.Sets {
		s.store.Locked(func() { all = append(all, s.list...) })
	}
	return all
}

// Client is a connection of a training process. Its methods may be called concurrently.
type Client interface {
	// ID returns what the client calls itself.
	ID() door.Hello
	// PID returns the process that the kernel sees at the other end; 0: unknown.
	PID() int32
	Write(frame []byte)
	Stream(frame iter.Seq[[]byte])
	HangUp()
	// Holds returns how many GETs of the client wait, and how many leases it has.
	Holds() (gets, leases int)
	// Waits notes that a GET waits, under a ticket.
	Waits(ticket uint64, at *Set)
	// Lease ends the wait, and gives the client a lease; it returns false if the client is gone.
	Lease(at *Set, lease uint32, ticket uint64) (id uint32, ok bool)
}

// tidySamples is how many planned samples leave enough garbage, some megabytes, to be worth a
// collection.
const tidySamples = 1 << 18

// tidy is called before, during and after the planning of an epoch. It returns the garbage of plans
// to the system, the first time and whenever there is much of it: planning an epoch of a few
// thousand samples takes no longer than a collection.
func (r *Rank) tidy(samples int) {
	if r.Tidy == nil {
		return
	}
	if left := r.planned.Add(int64(samples)); left == int64(samples) || left >= tidySamples {
		r.planned.Store(1)
		r.Tidy()
	}
}
