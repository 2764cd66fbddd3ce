package mpicache

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"rankpool/mpicache/door"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// conn is one client: a training process, one of its workers, or a launcher. It handles what the
// client asks for at the door.
type conn struct {
	*door.Conn
	node *Node

	// Only the goroutine that serves the connection uses these.
	streams map[uint32]*stream // opened by this connection, by number
	limits  door.Limits
	asked   bool     // for a plan or a batch: from then on its tallies count for this rank
	numbers []uint32 // a buffer for lists of leases

	plansBeside atomic.Int32 // PLANs whose reply has not been sent

	mu         sync.Mutex // protects the rest
	door.Hello            // the client's identity; ControlTrainer before its HELLO
	closed     bool
	lastLease  uint32
	leases     map[uint32]leaseRef
	waiting    map[uint64]*samples // by ticket: GETs under way
}

// leaseRef is a lease as its stager knows it.
type leaseRef struct {
	stream *samples
	lease  uint32
}

func (n *Node) newConn(sock door.Socket) *conn {
	c := &conn{
		node: n, Hello: door.Hello{Trainer: door.ControlTrainer}, leases: map[uint32]leaseRef{},
		waiting: map[uint64]*samples{}, streams: map[uint32]*stream{},
	}
	c.Conn = door.NewConn(sock, n.cfg.Log, n.beside, c)
	return c
}

// Enter admits a client, unless this rank or the client's process has too many connections.
func (c *conn) Enter() error {
	n := c.node
	n.connMu.Lock()
	defer n.connMu.Unlock()
	same := 0
	for other := range n.conns {
		if other.PID == c.PID && c.PID != 0 {
			same++
		}
	}
	switch {
	case len(n.conns) >= maxConns:
		return fmt.Errorf("this rank has %d connections, and takes no more", len(n.conns))
	case same >= maxConnsOfOne:
		return fmt.Errorf("process %d has %d connections to this rank, and gets no more", c.PID,
			same)
	}
	n.conns[c] = struct{}{}
	return nil
}

// Greet stores the client's HELLO and returns a description of the rank.
func (c *conn) Greet(h door.Hello) (w door.Welcome, slabFD int) {
	c.mu.Lock()
	c.Hello = h
	c.mu.Unlock()
	cfg := &c.node.cfg
	w = door.Welcome{
		Rank: cfg.Transport.Rank(), Ranks: cfg.Transport.Size(), SlabBytes: cfg.SlabBytes,
		Session: cfg.Session, PlanVersion: plan.Version, Options: cfg.Options.String(),
		Sampler: cmp.Or(cfg.Sampler, cfg.system().LiveSampler()),
	}
	for _, d := range cfg.Data {
		w.Data = append(w.Data, door.WelcomeData{
			Name: d.Name, Samples: d.Samples, Index: d.IndexPath, Root: d.Root,
			Identity: d.Identity, Times: d.Times,
		})
	}
	return w, c.node.slabFD
}

// Limits returns the limits for the data sets that the client has opened.
func (c *conn) Limits() door.Limits { return c.limits }

// Handle does what a frame asks for.
func (c *conn) Handle(f door.Frame) error {
	switch f.Kind {
	case door.KindGet:
		return c.get(f)
	case door.KindRelease:
		return c.onRelease(f)
	case door.KindReport:
		return c.report(f)
	case door.KindOpen:
		return c.open(f)
	case door.KindPlan, door.KindSave:
		return c.place(f)
	case door.KindMetric:
		return c.metric(f)
	case door.KindStatus:
		c.Reply(f, c.node.status())
	case door.KindShutdown:
		c.Write(door.AppendFrame(nil, f.Kind.Reply(), f.Ticket, nil))
		c.node.stopOnce.Do(func() { close(c.node.stopped) })
	default:
		return door.Broken("a frame of kind %d", f.Kind)
	}
	return nil
}

func (c *conn) get(f door.Frame) error {
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
	return s.onGet(c, f.Ticket, g)
}

func (c *conn) onRelease(f door.Frame) error {
	g, err := door.ParseRelease(f.Payload, c.numbers)
	c.numbers = g.Leases
	if err != nil {
		return err
	}
	return c.release(g)
}

func (c *conn) report(f door.Frame) error {
	r, err := door.ParseReport(f.Payload)
	if err != nil {
		return err
	}
	s, err := c.opened(r.Stream)
	if err != nil {
		return err
	}
	return s.onReport(c, r)
}

func (c *conn) open(f door.Frame) error {
	var spec protocol.Spec
	if err := json.Unmarshal(f.Payload, &spec); err != nil {
		return door.Broken("OPEN: %s", err)
	}
	i := slices.IndexFunc(c.node.streams, func(s *stream) bool { return s.data.Name == spec.Data })
	if i < 0 {
		return door.Refuse("this cache has no data set %q", spec.Data)
	}
	set := c.node.streams[i].samples
	if err := c.checkSpec(&spec, set.data); err != nil {
		return err
	}
	if err := checkNeeds(&spec, c.node.cfg.system(), set.data.Samples); err != nil {
		return err
	}
	s, err := set.onOpen(c, spec)
	if err != nil {
		return err
	}
	c.streams[s.number()] = s
	c.limits.ReportBytes = max(c.limits.ReportBytes, reportBytes(&spec, s.data.Samples))
	c.Reply(f, door.Opened{
		Stream: int64(s.number()), Batches: spec.Batches(s.data.Samples),
		Scorer: s.scorerFor(spec), Choice: s.choice(&spec), Embeddings: spec.Embeddings,
	})
	return nil
}

// place handles PLAN and SAVE.
func (c *conn) place(f door.Frame) error {
	p, err := door.ParsePlace(f.Payload)
	if err != nil {
		return err
	}
	s, err := c.opened(p.Stream)
	if err != nil {
		return err
	}
	c.asked = c.asked || f.Kind == door.KindPlan
	return s.onPlace(c, f.Kind, f.Ticket, p)
}

func (c *conn) metric(f door.Frame) error {
	var m door.Metric
	if err := json.Unmarshal(f.Payload, &m); err != nil {
		return door.Broken("METRIC: %s", err)
	}
	s, err := c.opened(m.Stream)
	if err != nil {
		return err
	}
	return s.onMetric(m)
}

// release ends leases, and records the tally that comes with them if this connection has opened its
// data set: a client may send a tally for one that it opened before it reconnected.
func (c *conn) release(g door.Get) error {
	for _, id := range g.Leases {
		c.mu.Lock()
		ref, ok := c.leases[id]
		delete(c.leases, id)
		c.mu.Unlock()
		if !ok {
			return door.Broken("the release of lease %d, which this connection has not", id)
		}
		ref.stream.release(ref.lease)
	}
	if s, err := c.opened(g.Tally.Stream); err == nil {
		s.onTally(teller{c.Trainer, c.Worker}, g.Tally, c.asked)
	}
	return nil
}

// lease gives the client a lease; it returns false if the client is gone.
func (c *conn) lease(s *samples, lease uint32, ticket uint64) (id uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, ticket)
	if c.closed {
		return 0, false
	}
	c.lastLease++
	c.leases[c.lastLease] = leaseRef{s, lease}
	return c.lastLease, true
}

// Close ends the client's leases and requests.
func (c *conn) Close() {
	c.HangUp()
	c.mu.Lock()
	c.closed = true
	leases, waiting := c.leases, c.waiting
	c.leases, c.waiting = nil, nil
	c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(leases)) {
		leases[id].stream.release(leases[id].lease)
	}
	for _, ticket := range slices.Sorted(maps.Keys(waiting)) {
		waiting[ticket].withdraw(ticket)
	}
	for _, number := range slices.Sorted(maps.Keys(c.streams)) {
		c.streams[number].forget(c)
	}
	c.node.connMu.Lock()
	delete(c.node.conns, c)
	c.node.connMu.Unlock()
}

// whose returns the number of the trainer that the client is or belongs to, and its family;
// ControlTrainer if it does not train, or before its HELLO.
func (c *conn) whose() (trainer uint32, family uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Trainer, c.Family
}
