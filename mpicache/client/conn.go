package client

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"rankpool/mpicache/door"
	"rankpool/mpicache/training"
	"rankpool/scheduler/protocol"
)

// Conn is one client: a training process, one of its workers, or a launcher. It handles what the
// client asks for at the door.
type Conn struct {
	*door.Conn
	door *Door

	// Only the goroutine that serves the connection uses these.
	trainings map[uint32]*training.Training // opened by this connection, by number
	limits    door.Limits
	asked     bool     // for a plan or a batch: from then on its tallies count for this rank
	numbers   []uint32 // a buffer for lists of leases

	mu         sync.Mutex // protects the rest
	door.Hello            // the client's identity; ControlTrainer before its HELLO
	closed     bool
	lastLease  uint32
	leases     map[uint32]leaseRef
	waiting    map[uint64]*training.Set // by ticket: GETs under way
}

// leaseRef is a lease as its stager knows it.
type leaseRef struct {
	of    *training.Set
	lease uint32
}

// ID returns what the client calls itself.
func (c *Conn) ID() door.Hello {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Hello
}

// PID returns the process that the kernel sees at the other end; 0: unknown.
func (c *Conn) PID() int32 { return c.Conn.PID }

// Enter admits a client, unless this rank or the client's process has too many connections.
func (c *Conn) Enter() error { return c.door.enter(c) }

// Greet stores the client's HELLO and returns a description of the rank.
func (c *Conn) Greet(h door.Hello) (w door.Welcome, slabFD int) {
	c.mu.Lock()
	c.Hello = h
	c.mu.Unlock()
	return c.door.Welcome, c.door.SlabFD
}

// Limits returns the limits for the data sets that the client has opened.
func (c *Conn) Limits() door.Limits { return c.limits }

// Handle does what a frame asks for.
func (c *Conn) Handle(f door.Frame) error {
	switch f.Kind {
	case door.KindGet:
		return c.get(f)
	case door.KindRelease:
		return c.onRelease(f)
	case door.KindReport:
		return c.report(f)
	case door.KindList:
		return c.list(f)
	case door.KindOpen:
		return c.open(f)
	case door.KindPlan, door.KindSave:
		return c.place(f)
	case door.KindMetric:
		return c.metric(f)
	case door.KindStatus:
		c.Reply(f, c.door.Status())
	case door.KindShutdown:
		c.Write(door.AppendFrame(nil, f.Kind.Reply(), f.Ticket, nil))
		c.door.Shutdown()
	default:
		return door.Broken("a frame of kind %d", f.Kind)
	}
	return nil
}

func (c *Conn) get(f door.Frame) error {
	g, err := door.ParseGet(f.Payload, c.numbers)
	c.numbers = g.Leases
	if err != nil {
		return err
	}
	s, err := c.opened(g.Stream)
	if err != nil {
		return err
	}
	if err := c.release(g); err != nil {
		return err
	}
	c.asked = true
	return s.Get(c, f.Ticket, g)
}

func (c *Conn) onRelease(f door.Frame) error {
	g, err := door.ParseRelease(f.Payload, c.numbers)
	c.numbers = g.Leases
	if err != nil {
		return err
	}
	return c.release(g)
}

func (c *Conn) report(f door.Frame) error {
	r, err := door.ParseReport(f.Payload)
	if err != nil {
		return err
	}
	s, err := c.opened(r.Stream)
	if err != nil {
		return err
	}
	return s.Report(c, r)
}

func (c *Conn) list(f door.Frame) error {
	l, err := door.ParseList(f.Payload)
	if err != nil {
		return err
	}
	s, err := c.opened(l.Stream)
	if err != nil {
		return err
	}
	if err := s.List(c, l); err != nil {
		return err
	}
	c.Write(door.AppendFrame(nil, f.Kind.Reply(), f.Ticket, nil))
	return nil
}

func (c *Conn) open(f door.Frame) error {
	var spec protocol.Spec
	if err := json.Unmarshal(f.Payload, &spec); err != nil {
		return door.Broken("OPEN: %s", err)
	}
	i := slices.IndexFunc(c.door.Rank.Sets, func(s *training.Set) bool {
		return s.Data().Name == spec.Data
	})
	if i < 0 {
		return door.Refuse("this cache has no data set %q", spec.Data)
	}
	set := c.door.Rank.Sets[i]
	data := set.Data()
	if err := c.checkSpec(&spec, data); err != nil {
		return err
	}
	if err := checkNeeds(&spec, c.door.Rank.System, data.Samples); err != nil {
		return err
	}
	s, err := set.Open(c, c.trainings, spec)
	if err != nil {
		return err
	}
	c.trainings[s.Number()] = s
	c.limits.ReportBytes = max(c.limits.ReportBytes, reportBytes(&spec, data.Samples))
	c.Reply(f, door.Opened{
		Stream: int64(s.Number()), Batches: spec.Batches(data.Samples),
		Scorer: s.ScorerFor(spec), Choice: s.Choice(&spec), Embeddings: spec.Embeddings,
	})
	return nil
}

// place handles PLAN and SAVE.
func (c *Conn) place(f door.Frame) error {
	p, err := door.ParsePlace(f.Payload)
	if err != nil {
		return err
	}
	s, err := c.opened(p.Stream)
	if err != nil {
		return err
	}
	c.asked = c.asked || f.Kind == door.KindPlan
	return s.Place(c, f.Kind, f.Ticket, p)
}

func (c *Conn) metric(f door.Frame) error {
	var m door.Metric
	if err := json.Unmarshal(f.Payload, &m); err != nil {
		return door.Broken("METRIC: %s", err)
	}
	s, err := c.opened(m.Stream)
	if err != nil {
		return err
	}
	return s.Metric(c, m)
}

// release ends leases, and records the tally that comes with them if this connection has opened its
// data set: a client may send a tally for one that it opened before it reconnected.
func (c *Conn) release(g door.Get) error {
	for _, id := range g.Leases {
		c.mu.Lock()
		ref, ok := c.leases[id]
		delete(c.leases, id)
		c.mu.Unlock()
		if !ok {
			return door.Broken("the release of lease %d, which this connection has not", id)
		}
		ref.of.Release(ref.lease)
	}
	if s, err := c.opened(g.Tally.Stream); err == nil {
		s.Tally(training.Teller{Trainer: c.Trainer, Worker: c.Worker}, g.Tally, c.asked)
	}
	return nil
}

// Holds returns how many GETs of the client wait, and how many leases it has.
func (c *Conn) Holds() (gets, leases int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting), len(c.leases)
}

// Waits notes that a GET waits, under a ticket.
func (c *Conn) Waits(ticket uint64, at *training.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting != nil {
		c.waiting[ticket] = at
	}
}

// Lease ends the wait, and gives the client a lease; it returns false if the client is gone.
func (c *Conn) Lease(at *training.Set, lease uint32, ticket uint64) (id uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, ticket)
	if c.closed {
		return 0, false
	}
	c.lastLease++
	c.leases[c.lastLease] = leaseRef{at, lease}
	return c.lastLease, true
}

// Leased returns a lease of the client as its data set knows it.
func (c *Conn) Leased(id uint32) (of *training.Set, lease uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[id].of, c.leases[id].lease
}

// Close ends the client's leases and requests.
func (c *Conn) Close() {
	c.HangUp()
	c.mu.Lock()
	c.closed = true
	leases, waiting := c.leases, c.waiting
	c.leases, c.waiting = nil, nil
	c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(leases)) {
		leases[id].of.Release(leases[id].lease)
	}
	for _, ticket := range slices.Sorted(maps.Keys(waiting)) {
		waiting[ticket].Withdraw(ticket)
	}
	for _, number := range slices.Sorted(maps.Keys(c.trainings)) {
		c.trainings[number].Forget(c)
	}
	c.door.leave(c)
}
