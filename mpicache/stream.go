package mpicache

import (
	"slices"
	"sync"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/slab"
	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// samples holds this rank's samples of a data set, and drives its stager. All trainings on the data
// set share it; each is a stream. mu protects everything in it and in its streams; replies to
// clients are written after mu is unlocked.
type samples struct {
	node  *Node
	index int
	data  *DataSet

	mu       sync.Mutex
	replies  []reply
	deferred []func() // deferred work, done after mu is unlocked
	closed   bool
	reads    sync.WaitGroup // reads from storage into the slab in progress

	streams []*stream    // the first one is that of the training without a job name
	gone    stats.Counts // what ended trainings have counted
	// by job name: how many trainings of that name have ended
	generations map[string]uint32

	stager *stager.Stager

	entries   *slab.Entries   // where each sample lies in the slab
	recovered []draw.SampleID // the previous rank's residents, for the stager

	largest  int64 // bytes of a sample
	ownBytes int64 // of the slab, for all samples that this rank owns by the hash
	queue    []stager.Event
	stepping bool              // step is handling the queue
	commands []stager.Command  // a buffer for those of the event that is handled
	batch    []door.BatchEntry // a buffer for the delivery under way
	hungry   bool              // something found no room
	freed    bool              // memory was freed since

	capacityBytes int64           // of the partition now
	weights       map[int]float64 // by lane, what memory is worth to it

	tierErr  error // why the tier failed last
	tierOver bool  // it was given up

	packageFailed bool // a package failed, and a warning was logged

	gets  map[uint64]pendingGet
	asks  map[uint32]*asking
	lost  map[uint32]*asking // abandoned, but the peer may still write to their places
	bulks map[asker]uint32   // by request of a peer: the ticket of its bytes
}

// stream is one training on a data set, on this rank.
type stream struct {
	*samples
	job        string        // "": the training without a name
	generation uint32        // how many of that name have ended before
	lane       int           // its number in the stager
	began      bool          // it has one
	ended      bool          // it is no longer served
	over       chan struct{} // closed when it has ended

	recording sync.WaitGroup // lines of the run log in progress
	// warns once that few samples get most of the draws
	fewSamples sync.Once
	saving     chan struct{} // closed when the newest state is written, or nil
	keeping    chan struct{} // the same for the rank's folder

	coordinator  *protocol.Coordinator
	command      func(protocol.Command) // obey
	events       []protocol.Event       // for the coordinator
	coordinating bool
	requests     map[uint64]*request // by number
	lastRequest  uint64
	setup        *setup      // basis of plans and stager, once it has begun
	plans        plan.Config // what plans are made from
	// benefit measures what the cache is worth to it, once it has begun
	benefit *stager.Benefit
	outbox  []byte            // records for the other ranks
	moved   map[int]time.Time // by epoch: when the last local trainer left it

	seats map[int]*seat // by trainer, of this node
	// livesAt are the other ranks with a live trainer of the training that ranks served before they
	// were restarted; livedHere is true if one was alive here.
	livesAt   map[int]bool
	livedHere bool

	clients   map[*conn]bool // that have opened it
	idleSince time.Time      // since when it has no process here; zero if it has one
	idle      bool           // it is idle, and rank 0 knows
	idleAt    map[int]bool   // rank 0: the ranks that have reported this

	due      map[due]bool // what GETs wait for
	plansHad int          // plans that the stager had released at the last look

	epochs       map[int]*epochCount
	closedEpochs map[int]bool    // whose counts have been sent
	past         stats.Counts    // what they have counted
	shown        door.DataStatus // the newest progress reported
}

// pendingGet is a GET that waits for its batch.
type pendingGet struct {
	stream *stream
	conn   *conn
	ticket uint32
	due    due
}

// due is a trainer's part of a batch, which one GET at a time waits for.
type due struct{ trainer, epoch, batch int }

// reply is a frame for a client.
type reply struct {
	conn  *conn
	frame []byte
}

func newSamples(n *Node, index int) *samples {
	d := &n.cfg.Data[index]
	s := &samples{
		node: n, index: index, data: d, capacityBytes: d.PartitionBytes[n.cfg.Transport.Rank()],
		gets: map[uint64]pendingGet{}, asks: map[uint32]*asking{},
		lost: map[uint32]*asking{}, bulks: map[asker]uint32{}, weights: map[int]float64{},
		generations: map[string]uint32{},
	}
	for i := range d.Samples {
		id := draw.SampleID(i)
		s.largest = max(s.largest, d.Size(id))
		if draw.Owner(id, n.cfg.Transport.Size()) == n.cfg.Transport.Rank() {
			s.ownBytes += slab.Footprint(d.Size(id))
		}
	}
	s.entries = n.slab.Entries(index)
	s.streams = []*stream{newStream(s, "")}
	return s
}

func newStream(on *samples, job string) *stream {
	s := &stream{
		samples: on, job: job, over: make(chan struct{}), due: map[due]bool{},
		epochs: map[int]*epochCount{}, closedEpochs: map[int]bool{}, seats: map[int]*seat{},
		livesAt: map[int]bool{}, clients: map[*conn]bool{}, idleAt: map[int]bool{},
		requests: map[uint64]*request{}, moved: map[int]time.Time{},
	}
	s.command = s.obey
	s.coordinator = protocol.New(s.coordination())
	return s
}

// locked runs f with the stream locked, and then writes the resulting replies and does the deferred
// work.
func (s *samples) locked(f func()) {
	s.mu.Lock()
	f()
	replies, deferred := s.replies, s.deferred
	s.replies, s.deferred = nil, nil
	s.mu.Unlock()
	for _, r := range replies {
		r.conn.Write(r.frame)
	}
	for _, do := range deferred {
		do()
	}
}

// later calls f after the stream is unlocked: f may block or take long.
func (s *samples) later(f func()) { s.deferred = append(s.deferred, f) }

func (s *samples) reply(c *conn, frame []byte) {
	s.replies = append(s.replies, reply{c, frame})
}

// step passes an event to the stager, carries out its commands, and continues with the events that
// follow from them: step itself may be called while a command is carried out.
func (s *samples) step(e stager.Event) {
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
		if s.freed && s.hungry && len(s.queue) == 0 {
			s.hungry = false
			s.queue = append(s.queue, stager.Room{})
		}
		s.freed = false
	}
	s.queue, s.stepping = nil, false
	for _, l := range s.streams {
		l.leavePlans()
	}
}

// leavePlans reports to the coordinator which plans the stager has released.
func (s *stream) leavePlans() {
	n := 0
	if s.began {
		n = s.stager.PlansLeft(s.lane)
	}
	if n == s.plansHad {
		return
	}
	s.plansHad = n
	for _, epoch := range s.coordinator.Open() {
		if s.coordinator.Knows(epoch) && !s.stager.Knows(s.lane, epoch) {
			s.coordinate(protocol.Left{Epoch: epoch})
		}
	}
}

func (s *samples) do(c stager.Command) {
	switch c := c.(type) {
	case stager.Fetch:
		s.fetch(c)
	case stager.Read:
		s.reread(c)
	case stager.Timed:
		s.inLaneOf(c.Lane).timed(c)
	case stager.Check:
		s.check(c)
	case stager.Ask:
		s.ask(c)
	case stager.Send:
		s.send(c)
	case stager.Deliver:
		s.deliver(c)
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
func (s *samples) occupy(id draw.SampleID) bool {
	if s.has(id) {
		return true
	}
	off, ok := s.node.alloc(s.data.Size(id))
	if ok {
		s.entries.Take(int(id), off)
	}
	return ok
}

// occupyOrStarve is occupy for a sample that the stager requested: without room, it reports that to
// the stager.
func (s *samples) occupyOrStarve(id draw.SampleID) bool {
	ok := s.occupy(id)
	if !ok {
		s.hungry = true
		s.step(stager.Starved{ID: id})
	}
	return ok
}

// has reports whether the sample has a place.
func (s *samples) has(id draw.SampleID) bool {
	_, ok := s.entries.Place(int(id))
	return ok
}

// place returns the offset in the slab of a sample that has a place.
func (s *samples) place(id draw.SampleID) int64 {
	off, ok := s.entries.Place(int(id))
	if !ok || !s.node.slab.Holds(off, s.data.Size(id)) {
		s.node.spoilt("sample %d of %s has place %d (%v)", id, s.data.Name, off, ok)
	}
	return off
}

// vacate frees the sample's place.
func (s *samples) vacate(id draw.SampleID) {
	if off, ok := s.entries.Place(int(id)); ok {
		s.entries.Drop(int(id))
		s.node.free(off)
		s.freed = true
	}
}

func (s *samples) bytes(id draw.SampleID) []byte {
	return s.node.slab.Bytes(s.place(id), s.data.Size(id))
}

func (s *samples) fetch(c stager.Fetch) {
	if !s.occupyOrStarve(c.ID) {
		return
	}
	s.reads.Add(1)
	into := s.bytes(c.ID)
	s.read(c.ID, into, c.Need, func(kept bool, err error) {
		// the sum is computed before the stream is locked
		sum := s.sumOf(into, err)
		if err != nil && s.node.halted.Err() == nil { // otherwise storage may be closed
			s.node.cfg.Log.Error("a sample cannot be read", "data", s.data.Name, "sample", c.ID,
				"error", err)
		}
		s.locked(func() {
			if err != nil {
				s.vacate(c.ID)
			} else {
				s.put(c.ID, sum)
			}
			s.step(stager.Fetched{ID: c.ID, Kept: kept, Err: err})
		})
		s.reads.Done()
	})
}

func (s *samples) deliver(c stager.Deliver) {
	g, waits := s.take(c.Ticket)
	var lease uint32
	if waits {
		lease, waits = g.conn.lease(s, c.Lease, c.Ticket)
	}
	if !waits {
		s.step(stager.Released{Lease: c.Lease})
		return
	}
	entries := slices.Grow(s.batch[:0], len(c.IDs))[:len(c.IDs)]
	s.batch = entries
	var places []int // in the plan, where a draw may be served by another sample
	plan := s.stager.Plan(g.stream.lane, g.due.epoch)
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
			entries[i].Offset = uint64(s.place(id))
		}
	}
	s.reply(g.conn, door.AppendBatch(make([]byte, 0, 64+32*len(entries)), g.ticket, lease, entries,
		c.Errs))
}

// onGet answers GET. A rank that has no plan for the epoch replies so at once, so that the client
// reads storage; meanwhile it makes the plan, if that is the next one.
func (s *stream) onGet(c *conn, ticket uint32, g door.Get) (err error) {
	s.locked(func() {
		if err = s.checkGet(c, g); err == nil {
			err = s.sit(c, false)
		}
		if err != nil {
			return
		}
		epoch, batch := int(g.Epoch), int(g.Batch)
		if s.coordinator.Knows(epoch) &&
			s.coordinator.Has(int(c.Trainer), s.node.cfg.Transport.Rank()) {
			s.request(c, ticket, int(c.Trainer), epoch, batch)
			return
		}
		s.coordinate(protocol.BatchWanted{Epoch: epoch, Batch: batch})
		err = door.NotReady("this rank has no plan for that epoch yet")
	})
	return err
}

func (s *stream) request(c *conn, ticket uint32, trainer, epoch, batch int) {
	s.count(epoch)
	t := s.node.tickets.Add(1)
	c.mu.Lock()
	if c.waiting != nil {
		c.waiting[t] = s.samples
	}
	c.mu.Unlock()
	d := due{trainer, epoch, batch}
	s.gets[t], s.due[d] = pendingGet{s, c, ticket, d}, true
	s.step(stager.Requested{
		Lane: s.lane, Trainer: trainer, Epoch: epoch, Batch: batch, Ticket: t,
	})
	s.data.Storage.Demand(s.stager.Demand())
}

// take returns a GET that waits no more, if it has waited.
func (s *samples) take(ticket uint64) (g pendingGet, ok bool) {
	if g, ok = s.gets[ticket]; ok {
		delete(s.gets, ticket)
		delete(g.stream.due, g.due)
	}
	return g, ok
}

func (s *samples) withdraw(ticket uint64) {
	s.locked(func() {
		s.take(ticket)
		s.step(stager.Withdrawn{Ticket: ticket})
	})
}

func (s *samples) release(lease uint32) {
	s.locked(func() { s.step(stager.Released{Lease: lease}) })
}

// tick does the periodic work that is due.
func (s *samples) tick(now time.Time) {
	s.locked(func() {
		for _, l := range slices.Clone(s.streams) {
			l.forgetBefore()
			l.flushReports()
			l.coordinate(protocol.Ticked{Now: now.Sub(s.node.started)})
			l.lookIdle(now)
		}
		if s.stager == nil {
			return
		}
		s.giveUpAsks(now)
		if s.hungry { // another data set may have freed memory
			s.hungry = false
			s.step(stager.Room{})
		}
		for _, l := range s.streams {
			l.closeEpochs(now)
		}
	})
}
