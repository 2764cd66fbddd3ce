// Package store holds a rank's samples: it carries out what the stager of each data set (package
// scheduler) decides, in the memory, on storage, on the node's disks, and with the other ranks.
package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"rankpool/mpicache/message"
	"rankpool/mpicache/outside"
	"rankpool/mpicache/slab"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/transport"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/stager"
)

// Rank is what the stores of a rank share.
type Rank struct {
	outside.World
	Transport transport.Transport
	Memory    *Memory
	Peers     *Peers
	Halted    context.Context // done when the rank ends
	Log       *slog.Logger
}

// Trainings are those on a data set, each with a lane in its stager. The store calls them while it
// is locked.
type Trainings interface {
	// Lane returns the lane of a training that a peer names; false: it has none here.
	Lane(about message.About) (lane int, ok bool)
	// About returns what messages call the training in a lane.
	About(lane int) message.About
	// Deliver gives a trainer its part of a batch. It returns false if nobody waits for it.
	Deliver(c stager.Deliver) bool
	// Timed notes that a part of a batch is complete.
	Timed(c stager.Timed)
	// Stepped notes that the stager has handled events: it may have released plans.
	Stepped()
}

// Store holds this rank's samples of a data set, and drives its stager. All trainings on the data
// set share it, and its lock, which protects everything in it and in them. Methods need the lock
// unless they say that they take it.
type Store struct {
	rank      *Rank
	index     int
	data      *DataSet
	trainings Trainings

	mu       sync.Mutex
	replies  []reply  // sent after mu is unlocked
	deferred []func() // done after that
	closed   bool
	reads    sync.WaitGroup // reads from storage into the slab in progress

	stager   *stager.Stager // nil before the first training
	queue    []stager.Event
	stepping bool             // Step is handling the queue
	commands []stager.Command // a buffer for those of the event that is handled

	entries   *slab.Entries   // where each sample lies in the slab
	recovered []draw.SampleID // the previous rank's residents, for the stager

	ownBytes      int64 // of the slab, for all samples that this rank owns by the hash
	capacityBytes int64 // of the partition now
	hungry        bool  // something found no room
	freed         bool  // memory was freed since

	tierErr  error // why the tier failed last
	tierOver bool  // it was given up

	packageFailed bool // a package failed, and a warning was logged

	asks  map[uint32]*asking
	lost  map[uint32]*asking // abandoned, but the peer may still write to their places
	bulks map[asker]uint32   // by request of a peer: the ticket of its bytes
}

// New returns the store of the data set with that number. Serve must follow.
func New(rank *Rank, index int, data *DataSet) *Store {
	own, ranks := rank.Transport.Rank(), rank.Transport.Size()
	s := &Store{
		rank: rank, index: index, data: data, capacityBytes: data.PartitionBytes[own],
		entries: rank.Memory.slab.Entries(index), asks: map[uint32]*asking{},
		lost: map[uint32]*asking{}, bulks: map[asker]uint32{},
	}
	for i := range data.Held() {
		if id := draw.SampleID(i); data.Owner(id, ranks) == own {
			s.ownBytes += slab.Footprint(data.Size(id))
		}
	}
	return s
}

// Serve sets the trainings that use the store.
func (s *Store) Serve(trainings Trainings) { s.trainings = trainings }

// Recover notes that the memory holds a sample of an earlier life of this rank, before the first
// training begins.
func (s *Store) Recover(id draw.SampleID) { s.recovered = append(s.recovered, id) }

// Locked runs f with the store locked, and then sends the resulting replies and does the deferred
// work.
func (s *Store) Locked(f func()) {
	s.mu.Lock()
	f()
	replies, deferred := s.replies, s.deferred
	s.replies, s.deferred = nil, nil
	s.mu.Unlock()
	for _, r := range replies {
		r.to.Write(r.frame)
	}
	for _, do := range deferred {
		do()
	}
}

// A Replier sends frames to a client.
type Replier interface{ Write(frame []byte) }

// reply is a frame for a client.
type reply struct {
	to    Replier
	frame []byte
}

// Reply sends a frame after the store is unlocked.
func (s *Store) Reply(to Replier, frame []byte) { s.replies = append(s.replies, reply{to, frame}) }

// Later calls f after the store is unlocked: f may block or take long.
func (s *Store) Later(f func()) { s.deferred = append(s.deferred, f) }

// Open opens a lane for a training whose trainers are on the ranks of world, and reports whether
// there were lanes before. The first one brings the policy.
func (s *Store) Open(lane int, world []int32, policy stager.Policy) (others bool) {
	if s.stager != nil {
		s.Step(stager.LaneOpened{Lane: lane, World: world})
		return true
	}
	rank, d := s.rank.Transport.Rank(), s.data
	cfg := stager.Config{
		Rank: rank, Ranks: s.rank.Transport.Size(), World: world, Samples: d.Held(),
		Size:   func(id draw.SampleID) int64 { return slab.Footprint(d.Size(id)) },
		Policy: policy, CapacityBytes: d.PartitionBytes[rank], WindowBytes: d.WindowBytes,
		OwnersRead: d.KeepsCopies,
		Kept:       func(id draw.SampleID, kept bool) { s.entries.Keep(int(id), kept) },
	}
	if d.Tier != nil {
		cfg.TierBytes, cfg.TierBlockBytes = d.TierBytes[rank], d.TierBlockBytes
	}
	if d.Packages != nil {
		cfg.PackageBytes, cfg.PackageBlockBytes = d.PackageBytes, d.PackageBlockBytes
	}
	s.stager = stager.New(cfg)
	if before := s.recovered; len(before) > 0 {
		s.recovered = nil
		s.Step(stager.Recovered{IDs: before})
	}
	return false
}

// Opened reports whether a training has begun. It takes the lock.
func (s *Store) Opened() (opened bool) {
	s.Locked(func() { opened = s.stager != nil })
	return opened
}

// Plan returns the plan of a lane's epoch, or nil.
func (s *Store) Plan(lane, epoch int) *plan.Plan { return s.stager.Plan(lane, epoch) }

// PlansLeft returns how many plans of a lane the stager has released.
func (s *Store) PlansLeft(lane int) int { return s.stager.PlansLeft(lane) }

// Questions returns how many questions to peers have no answer yet.
func (s *Store) Questions() int { return len(s.asks) }

// WindowBytes returns the memory held by samples that are not residents.
func (s *Store) WindowBytes() int64 {
	if s.stager == nil {
		return 0
	}
	return s.stager.WindowBytes()
}

// UsedBytes returns how much of the slab is used by samples, and by abandoned questions.
func (s *Store) UsedBytes() (bytes int64) {
	for id := range draw.SampleID(s.data.Held()) {
		if s.Has(id) {
			bytes += slab.Footprint(s.data.Size(id))
		}
	}
	for _, a := range s.lost {
		for _, id := range a.ids {
			bytes += slab.Footprint(s.data.Size(id))
		}
	}
	return bytes
}

// Tick does the periodic work that is due, and reports whether a training has begun.
func (s *Store) Tick(now time.Time) bool {
	if s.stager == nil {
		return false
	}
	s.giveUpAsks(now)
	if s.hungry { // another data set may have freed memory
		s.hungry = false
		s.Step(stager.Room{})
	}
	return true
}

// OwnBytes returns how much of the slab all samples that this rank owns would need.
func (s *Store) OwnBytes() int64 { return s.ownBytes }

// Close makes the store read nothing more. It takes the lock.
func (s *Store) Close() { s.Locked(func() { s.closed = true }) }

// Closed reports whether Close was called.
func (s *Store) Closed() bool { return s.closed }

// EndDisks abandons the disks.
func (s *Store) EndDisks() {
	if s.data.Tier != nil {
		s.data.Tier.End()
	}
	if s.data.Packages != nil {
		s.data.Packages.End()
	}
}

// Wait returns when no read into the slab is in progress.
func (s *Store) Wait() { s.reads.Wait() }

// Step passes an event to the stager, carries out its commands, and continues with the events that
// follow from them: Step itself may be called while a command is carried out.
func (s *Store) Step(e stager.Event) {
	if s.closed {
		return
	}
	s.queue = append(s.queue, e)
	if s.stepping {
		return
	}
	s.stepping = true
	for len(s.queue) > 0 {
		e := s.queue[0]
		s.queue = s.queue[1:]
		s.commands = s.stager.Step(e, s.commands[:0])
		for _, c := range s.commands {
			s.do(c)
		}
		if _, is := e.(stager.Requested); is {
			s.data.Storage.Demand(s.stager.Demand())
		}
		if s.freed && s.hungry && len(s.queue) == 0 {
			s.hungry = false
			s.queue = append(s.queue, stager.Room{})
		}
		s.freed = false
	}
	s.queue, s.stepping = nil, false
	s.trainings.Stepped()
}

// do carries out a command.
func (s *Store) do(c stager.Command) {
	switch c := c.(type) {
	case stager.Fetch:
		s.fetch(c)
	case stager.Read:
		s.reread(c)
	case stager.Timed:
		s.trainings.Timed(c)
	case stager.Check:
		s.check(c)
	case stager.Ask:
		s.ask(c)
	case stager.Send:
		s.send(c)
	case stager.Deliver:
		if !s.trainings.Deliver(c) {
			s.Step(stager.Released{Lease: c.Lease})
		}
	case stager.Free:
		s.vacate(c.ID)
	case stager.Store:
		s.store(c)
	case stager.Recall:
		s.recall(c)
	case stager.Erase:
		s.data.Tier.Erase(c.ID)
	case stager.Pack:
		s.pack(c)
	case stager.Unpack:
		s.unpack(c)
	case stager.Discard:
		s.data.Packages.Erase(draw.SampleID(c.Package))
	case stager.EndTier:
		s.endTier()
	}
}

// occupy allocates a place for the sample, if it has none and there is room.
func (s *Store) occupy(id draw.SampleID) bool {
	if s.Has(id) {
		return true
	}
	off, ok := s.rank.Memory.alloc(s.data.Size(id))
	if ok {
		s.entries.Take(int(id), off)
	}
	return ok
}

// occupyOrStarve is occupy for a sample that the stager requested: without room, it reports that to
// the stager.
func (s *Store) occupyOrStarve(id draw.SampleID) bool {
	ok := s.occupy(id)
	if !ok {
		s.hungry = true
		s.Step(stager.Starved{ID: id})
	}
	return ok
}

// Has reports whether the sample has a place.
func (s *Store) Has(id draw.SampleID) bool {
	_, ok := s.entries.Place(int(id))
	return ok
}

// Place returns the offset in the slab of a sample that has a place.
func (s *Store) Place(id draw.SampleID) int64 {
	off, ok := s.entries.Place(int(id))
	if !ok || !s.rank.Memory.slab.Holds(off, s.data.Size(id)) {
		s.rank.Memory.isSpoilt("sample %d of %s has place %d (%v)", id, s.data.Name, off, ok)
	}
	return off
}

// vacate frees the sample's place.
func (s *Store) vacate(id draw.SampleID) {
	if off, ok := s.entries.Place(int(id)); ok {
		s.entries.Drop(int(id))
		s.rank.Memory.free(off)
		s.freed = true
	}
}

func (s *Store) bytes(id draw.SampleID) []byte {
	return s.rank.Memory.bytes(s.Place(id), s.data.Size(id))
}

func (s *Store) fetch(c stager.Fetch) {
	if !s.occupyOrStarve(c.ID) {
		return
	}
	s.reads.Add(1)
	into := s.bytes(c.ID)
	s.read(c.ID, into, c.Need, func(kept bool, err error) {
		// the sum is computed before the store is locked
		sum := s.sumOf(into, err)
		if err != nil && s.rank.Halted.Err() == nil { // otherwise storage may be closed
			s.rank.Log.Error("a sample cannot be read", "data", s.data.Name, "sample", c.ID,
				"error", err)
		}
		s.Locked(func() {
			if err != nil {
				s.vacate(c.ID)
			} else {
				s.put(c.ID, sum)
			}
			s.Step(stager.Fetched{ID: c.ID, Kept: kept, Err: err})
		})
		s.reads.Done()
	})
}

// sumOf returns the directory's sum of bytes; 0 if reading them failed with err, or there is no
// directory.
func (s *Store) sumOf(bytes []byte, err error) uint32 {
	if err != nil || s.entries == nil {
		return 0
	}
	return slab.Sum(bytes)
}

// put records that a sample is complete in its place.
func (s *Store) put(id draw.SampleID, sum uint32) {
	s.entries.Put(int(id), s.Place(id), sum)
}

// check compares a sample's bytes with their sum, without the lock.
func (s *Store) check(c stager.Check) {
	bytes := s.bytes(c.ID)
	sum, whole := s.entries.Sum(int(c.ID))
	s.reads.Add(1)
	s.rank.Beside(nil, "check a sample", func() {
		whole := whole && slab.Sum(bytes) == sum
		s.Locked(func() {
			if !whole {
				s.entries.Spoil(int(c.ID))
				s.rank.Log.Warn("a sample in memory has other bytes than were written; it is read again",
					"data", s.data.Name, "sample", c.ID)
			}
			s.Step(stager.Checked{ID: c.ID, Whole: whole})
		})
		s.reads.Done()
	})
}

var errNoRoom = errors.New("mpicache: no room for a sample")

// reread reads a sample into separate memory, for which the window has room, and then frees it.
func (s *Store) reread(c stager.Read) {
	size := s.data.Size(c.ID)
	off, ok := s.rank.Memory.alloc(size)
	if !ok {
		s.Step(stager.Reread{ID: c.ID, Err: errNoRoom})
		return
	}
	s.reads.Add(1)
	s.data.Storage.Fetch(c.ID, s.rank.Memory.bytes(off, size), c.Need, func(err error) {
		s.Locked(func() {
			s.rank.Memory.free(off)
			s.freed = true
			s.Step(stager.Reread{ID: c.ID, Err: err})
		})
		s.reads.Done()
	})
}

// Shrink gives the data set a partition of another size, and frees its samples in the slab beyond
// endBytes.
func (s *Store) Shrink(endBytes, capacityBytes int64) {
	s.Locked(func() {
		if s.stager == nil {
			return // a later sweep does it
		}
		e := stager.Shrunk{CapacityBytes: capacityBytes}
		for id := 0; id < s.data.Held() && endBytes < s.rank.Memory.fullBytes; id++ {
			off, ok := s.entries.Place(id)
			if id := draw.SampleID(id); ok &&
				off+slab.Footprint(s.data.Size(id)) > endBytes && s.stager.Cache().Resident(id) {
				e.IDs = append(e.IDs, id)
			}
		}
		if len(e.IDs) > 0 || e.CapacityBytes != s.capacityBytes {
			s.capacityBytes = e.CapacityBytes
			s.Step(e)
		}
	})
}

// Capacity returns the current size of the partition.
func (s *Store) Capacity() (bytes int64) {
	s.Locked(func() { bytes = s.capacityBytes })
	return bytes
}

// Measure adds what is in memory to st.
func (s *Store) Measure(st *stats.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stager == nil {
		return
	}
	cache := s.stager.Cache()
	st.Residents += int64(cache.Len())
	st.ResidentBytes += cache.UsedBytes()
	if s.index == 0 {
		st.Ready = s.stager.Ready()
	}
}

// Counts returns what the stager counts of a lane's epoch, of this rank and not of its trainers.
func (s *Store) Counts(lane, epoch int) (counts stats.Counts) {
	counts[stats.PlannedHits] = int64(s.stager.PlannedHits(lane, epoch))
	packages := s.stager.Packages(lane, epoch)
	counts[stats.TierHits] = int64(s.stager.TierHits(lane, epoch))
	counts[stats.PackageReads] = int64(packages.Reads)
	counts[stats.PackageReadBytes] = packages.ReadBytes
	counts[stats.PackageWrites] = int64(packages.Writes)
	counts[stats.PackageWriteBytes] = packages.WriteBytes
	return counts
}
