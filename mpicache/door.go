package mpicache

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler"
)

// conn is one client: a training process, one of its workers, or a launcher.
type conn struct {
	node    *Node
	sock    socket
	pid     int32 // of the client, 0: it has PIDs of its own
	trainer uint32
	world   uint32
	worker  uint64
	process uint64
	family  uint64

	// Only serve's goroutine uses these.
	streams     map[uint32]*stream // that this connection has opened, by number
	reportBytes int                // of the largest REPORT that one of them needs
	asked       bool               // for a plan or a batch: it counts for this rank from then on
	numbers     []uint32           // a buffer for lists of leases
	besides     map[uint32]*beside

	plansBeside atomic.Int32 // without a reply

	replies outbox

	mu        sync.Mutex // protects the rest
	closed    bool
	lastLease uint32
	leases    map[uint32]leaseRef
	waiting   map[uint64]*samples // tickets of GETs under way
}

// leaseRef is a lease as its stager knows it.
type leaseRef struct {
	stream *samples
	lease  uint32
}

func (n *Node) accept() {
	for {
		sock, err := n.door.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			n.cfg.Log.Warn("the door does not accept", "error", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors: others may close theirs
			continue
		}
		if raw, err := sock.SyscallConn(); err == nil { // it fails when it is closed
			go n.newConn(&unixSocket{sock, raw}).serve()
		}
	}
}

func (n *Node) newConn(sock socket) *conn {
	return &conn{
		node: n, sock: sock, trainer: ControlTrainer, leases: map[uint32]leaseRef{},
		waiting: map[uint64]*samples{}, streams: map[uint32]*stream{},
		replies: outbox{sock: sock, beside: n.beside},
	}
}

// serve reads frames until the client is gone or breaks the protocol.
func (c *conn) serve() {
	defer c.close()
	cred, err := c.sock.peer()
	if err == nil {
		c.pid = cred.Pid
		err = c.node.enter(c)
	}
	if err != nil {
		c.node.cfg.Log.Warn("a client of the door was not let in", "error", err)
		c.write(appendError(nil, 0, codeRequest, err.Error()))
		// fails when closed, and so does what follows
		_ = c.sock.SetReadDeadline(time.Now().Add(helloTimeout))
		c.linger()
		return
	}
	r := bufio.NewReaderSize(c.sock, 16<<10)
	var buf []byte
	if err := c.greet(r, &buf); err != nil {
		c.leave(err)
		return
	}
	for {
		f, err := readFrame(r, &buf, c.payloadLimit)
		if err == nil {
			c.replies.cork(frameBuffered(r))
			err = c.handle(f)
			c.replies.cork(false)
		}
		if err != nil {
			c.leave(err)
			return
		}
	}
}

// leave ends the connection with a client that breaks the protocol, or is gone.
func (c *conn) leave(err error) {
	if c.sayWhy(err) {
		c.linger()
	}
}

// sayWhy tells a client that breaks the protocol why its connection ends; false: it is gone.
func (c *conn) sayWhy(err error) bool {
	var no refusal
	code := uint16(codeProtocol)
	switch {
	case errors.As(err, &no):
		code = no.code
	case errors.Is(err, errFrame):
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return false
	default:
		c.node.cfg.Log.Debug("a client of the door is gone", "trainer", c.trainer, "error", err)
		return false
	}
	c.node.cfg.Log.Warn("a client of the door was refused", "trainer", int32(c.trainer), "error",
		err)
	c.write(appendError(nil, 0, code, err.Error()))
	return true
}

// linger hangs up, and returns when the client has done so too: until then it may read what it has
// leased.
func (c *conn) linger() {
	c.replies.hangUp()
	_, _ = io.Copy(io.Discard, c.sock) // a client that is gone fails to send more
}

// greet handles HELLO and replies with the slab and the data sets.
func (c *conn) greet(r io.Reader, buf *[]byte) error {
	if err := c.sock.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	f, err := readFrame(r, buf, c.payloadLimit)
	if err == nil {
		err = c.sock.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return err
	}
	if f.kind != KindHello {
		return broken("a first frame of kind %d", f.kind)
	}
	h, err := parseHello(f.payload)
	if err == nil {
		err = h.check()
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.trainer, c.world, c.worker, c.process, c.family = h.trainer, h.world, h.worker, h.process,
		h.family
	c.mu.Unlock()
	b := appendFrame(nil, KindHello+replyTo, f.ticket)
	b = le.AppendUint16(b, ProtocolVersion)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, uint32(c.node.cfg.Transport.Rank()))
	b = le.AppendUint32(b, uint32(c.node.cfg.Transport.Size()))
	b = le.AppendUint64(b, uint64(c.node.cfg.SlabBytes))
	text, err := json.Marshal(c.node.description())
	if err != nil {
		return err
	}
	return c.sendWithSlab(endFrame(append(b, text...), 0))
}

// sendWithSlab sends b, and the slab's descriptor with its first bytes. A frame that is larger than
// the socket's buffer is sent piece by piece, as fast as the client reads.
func (c *conn) sendWithSlab(b []byte) error {
	var oob []byte
	if c.node.slabFD >= 0 {
		oob = unix.UnixRights(c.node.slabFD)
	}
	if err := c.sock.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	n, _, err := c.sock.WriteMsgUnix(b, oob, nil)
	if err == nil {
		c.write(b[n:])
	}
	return errors.Join(err, c.sock.SetWriteDeadline(time.Time{}))
}

// description is the JSON of HELLO's reply.
func (n *Node) description() any {
	type data struct {
		Name     string `json:"name"`
		Samples  int    `json:"samples"`
		Index    string `json:"index"`
		Root     string `json:"root"`
		Identity string `json:"identity"`
		Times    string `json:"times"`
	}
	var sets []data
	for _, d := range n.cfg.Data {
		sets = append(sets, data{d.Name, d.Samples, d.IndexPath, d.Root, d.Identity, d.Times})
	}
	return map[string]any{
		"data": sets, "session": n.cfg.Session, "plan_version": scheduler.PlanVersion,
		"options": n.cfg.Options.String(),
		"sampler": n.systemSampler(),
	}
}

// handle executes the request of a frame. An error ends the connection.
func (c *conn) handle(f frame) error {
	err := c.obey(f)
	var no refusal
	if errors.As(err, &no) && f.kind != KindReport { // nobody waits for the answer to a REPORT
		c.write(appendError(nil, f.ticket, no.code, no.sentence))
		return nil
	}
	return err
}

func (c *conn) obey(f frame) error {
	if b := c.besideOf(f); b != nil {
		return b.obey(c, f)
	}
	switch f.kind {
	case KindGet:
		return c.get(f)
	case KindRelease:
		return c.onRelease(f)
	case KindReport:
		return c.report(f)
	case KindOpen:
		return c.open(f)
	case KindPlan:
		return c.plan(f)
	case KindSave:
		return c.save(f)
	case KindMetric:
		return c.metric(f)
	case KindWarm:
		return c.warm(f)
	case KindStatus:
		c.answer(f, c.node.Status())
	case KindShutdown:
		c.write(AppendBare(nil, f.kind+replyTo, f.ticket))
		c.node.stopOnce.Do(func() { close(c.node.stopped) })
	default:
		return broken("a frame of kind %d", f.kind)
	}
	return nil
}

// answer replies with v as JSON.
func (c *conn) answer(f frame, v any) { c.write(appendJSON(nil, f.kind+replyTo, f.ticket, v)) }

func (c *conn) get(f frame) error {
	g, err := parseGet(f.payload, c.numbers)
	c.numbers = g.leases
	if err != nil {
		return err
	}
	s, err := c.opened(g.stream)
	if err != nil {
		return err
	}
	if err := c.release(g); err != nil {
		return err
	}
	c.asked = true
	return s.onGet(c, f.ticket, g)
}

func (c *conn) onRelease(f frame) error {
	g, err := parseRelease(f.payload, c.numbers)
	c.numbers = g.leases
	if err != nil {
		return err
	}
	return c.release(g)
}

func (c *conn) report(f frame) error {
	r, err := parseReport(f.payload)
	if err != nil {
		return err
	}
	s, err := c.opened(r.stream)
	if err != nil {
		return err
	}
	return s.onReport(c, r)
}

func (c *conn) open(f frame) error {
	var spec Spec
	if err := json.Unmarshal(f.payload, &spec); err != nil {
		return broken("OPEN: %s", err)
	}
	i := slices.IndexFunc(c.node.streams, func(s *stream) bool { return s.data.Name == spec.Data })
	if i < 0 {
		return refuse("there is no data set %q here", spec.Data)
	}
	set := c.node.streams[i].samples
	if err := c.checkSpec(&spec, set.data); err != nil {
		return err
	}
	if spec.Beside {
		return c.openBeside(f, set, spec)
	}
	if system := c.node.cfg.system(); !system.NeedsEpochs {
		spec.Epochs = 0
	} else if spec.Sampler == system.LiveSampler() && spec.Epochs < 1 {
		return refuse(
			"%s chooses by how many epochs will be trained: say BatchSampler(…, epochs=E)",
			system.Name)
	}
	if system := c.node.cfg.system(); !system.Evaluates || spec.Sampler != system.LiveSampler() {
		spec.Evaluates = false
	} else if !spec.Evaluates {
		return refuse("%s has batches that are evaluated and not trained on: say "+
			"BatchSampler(…, evaluates=True), and make no step with a batch of which "+
			"sampler.evaluating(ids) is true, but report its losses", system.Name)
	}
	if system := c.node.cfg.system(); !system.NeedsEmbeddings ||
		spec.Sampler != system.LiveSampler() {
		spec.Embeddings = 0
	} else if err := checkEmbeddings(&spec, system.Name); err != nil {
		return err
	}
	s, err := set.onOpen(c, spec)
	if err != nil {
		return err
	}
	c.streams[s.number()] = s
	c.reportBytes = max(c.reportBytes, reportBytes(&spec, s.data.Samples))
	c.answer(f, openReply{
		int64(s.number()), spec.Batches(s.data.Samples), s.scorerFor(spec), s.choice(&spec),
		spec.Embeddings,
	})
	return nil
}

func (c *conn) plan(f frame) error {
	p, err := parsePlace(f.payload)
	if err != nil {
		return err
	}
	s, err := c.opened(p.stream)
	if err != nil {
		return err
	}
	c.asked = true
	return s.onPlan(c, f.ticket, p)
}

func (c *conn) save(f frame) error {
	p, err := parsePlace(f.payload)
	if err != nil {
		return err
	}
	s, err := c.opened(p.stream)
	if err != nil {
		return err
	}
	return s.onSave(c, f.ticket, p)
}

func (c *conn) metric(f frame) error {
	var m metricFrame
	if err := json.Unmarshal(f.payload, &m); err != nil {
		return broken("METRIC: %s", err)
	}
	if c.besides[m.Stream] != nil {
		return nil
	}
	s, err := c.opened(m.Stream)
	if err != nil {
		return err
	}
	return s.onMetric(m)
}

func (c *conn) warm(f frame) error {
	w, err := parseWarm(f.payload)
	if err != nil {
		return err
	}
	if int64(w.stream) >= int64(len(c.node.streams)) {
		return refuse("there is no data set number %d", w.stream)
	}
	return c.node.streams[w.stream].onWarm(c, f.ticket, w)
}

// write sends whole frames, without waiting for the client.
func (c *conn) write(b []byte) { c.replies.write(b) }

// frameBuffered reports whether a whole frame waits in r.
func frameBuffered(r *bufio.Reader) bool {
	if r.Buffered() < frameHeadBytes {
		return false
	}
	head, err := r.Peek(frameHeadBytes)
	return err == nil && r.Buffered()-frameHeadBytes >= int(le.Uint32(head))
}

// release ends leases and records the tally that comes with them, if it is of a data set that is
// open here: a tally may be of one that was opened before a reconnect.
func (c *conn) release(g getFrame) error {
	for _, id := range g.leases {
		c.mu.Lock()
		ref, ok := c.leases[id]
		delete(c.leases, id)
		c.mu.Unlock()
		if !ok {
			return broken("the release of lease %d, which this connection has not", id)
		}
		ref.stream.release(ref.lease)
	}
	if s, err := c.opened(g.tally.stream); err == nil {
		s.onTally(teller{c.trainer, c.worker}, g.tally, c.asked)
	}
	return nil
}

// held returns how many GETs of the client wait, and how many leases it has.
func (c *conn) held() (gets, leases int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting), len(c.leases)
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

// close ends the client's leases and requests.
func (c *conn) close() {
	_ = c.sock.Close()
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
// ControlTrainer when it trains nothing or has not said so yet.
func (c *conn) whose() (trainer uint32, family uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trainer, c.family
}
