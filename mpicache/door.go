package mpicache

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler"
)

// conn is one client: a training process, one of its workers, or a launcher.
type conn struct {
	node    *Node
	sock    *net.UnixConn
	trainer uint32
	world   uint32
	worker  uint64
	asked   bool // for a plan or a batch: what it counts from then on is of this rank; only serve's goroutine uses it

	writeMu sync.Mutex // protects the next two
	corked  bool       // more requests have been read: their replies leave together
	out     []byte

	mu        sync.Mutex // protects the rest
	closed    bool
	lastLease uint32
	leases    map[uint32]leaseRef
	waiting   map[uint64]*stream // tickets of GETs under way
}

// leaseRef is a lease as its stager knows it.
type leaseRef struct {
	stream *stream
	lease  uint32
}

// writeTimeout bounds how long a client that does not read can hold up whoever has a reply for it.
const writeTimeout = 10 * time.Second

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
		c := &conn{node: n, sock: sock, trainer: ControlTrainer, leases: map[uint32]leaseRef{}, waiting: map[uint64]*stream{}}
		n.connMu.Lock()
		n.conns[c] = struct{}{}
		n.connMu.Unlock()
		go c.serve()
	}
}

// serve reads frames until the client is gone or talks nonsense.
func (c *conn) serve() {
	defer c.close()
	r := bufio.NewReaderSize(c.sock, 64<<10)
	var buf []byte
	var leases []uint32
	if err := c.greet(r, &buf); err != nil {
		c.refuse(err)
		return
	}
	for {
		f, err := readFrame(r, &buf)
		if err == nil {
			c.cork(frameBuffered(r))
			leases, err = c.handle(f, leases)
			c.write(nil)
		}
		if err != nil {
			c.cork(false)
			c.refuse(err)
			return
		}
	}
}

// refuse tells a client that talks nonsense why it is left; one that is gone is told nothing.
func (c *conn) refuse(err error) {
	if errors.Is(err, errFrame) {
		c.node.cfg.Log.Warn("a client of the door was refused", "trainer", c.trainer, "error", err)
		c.write(appendError(nil, 0, codeProtocol, err.Error()))
		c.linger()
	} else if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.node.cfg.Log.Debug("a client of the door is gone", "trainer", c.trainer, "error", err)
	}
}

// linger hangs up, and returns when the client has done so too: until then it may read what it has leased.
func (c *conn) linger() {
	_ = c.sock.CloseWrite() // a client that is gone needs none of this
	_, _ = io.Copy(io.Discard, c.sock)
}

// greet takes HELLO and answers with the slab and the data sets.
func (c *conn) greet(r io.Reader, buf *[]byte) error {
	f, err := readFrame(r, buf)
	if err != nil {
		return err
	}
	if f.kind != KindHello {
		return fmt.Errorf("mpicache: a first frame of kind %d: %w", f.kind, errFrame)
	}
	h, err := parseHello(f.payload)
	if err == nil && h.version != ProtocolVersion {
		err = fmt.Errorf("mpicache: the client speaks version %d of the protocol, this rank version %d; use the client that this rankpool brings along: %w", h.version, ProtocolVersion, errFrame)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.trainer, c.world, c.worker = h.trainer, h.world, h.worker
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

// sendWithSlab sends b, and the slab's descriptor with its first bytes. A frame that is larger than the socket's
// buffer leaves piece by piece, as fast as the client reads.
func (c *conn) sendWithSlab(b []byte) error {
	var oob []byte
	if c.node.slabFD >= 0 {
		oob = unix.UnixRights(c.node.slabFD)
	}
	if err := c.sock.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	n, _, err := c.sock.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		_, err = c.sock.Write(b[n:])
	}
	return err
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
	return map[string]any{"data": sets, "session": n.cfg.Session, "plan_version": scheduler.PlanVersion}
}

// handle does one frame; an error ends the connection. leases is a buffer that is used again.
func (c *conn) handle(f frame, leases []uint32) ([]uint32, error) {
	switch f.kind {
	case KindGet:
		g, err := parseGet(f.payload, leases)
		if err != nil {
			return leases, err
		}
		c.release(g)
		c.asked = true
		c.get(g, f.ticket)
		return g.leases, nil
	case KindRelease:
		g, err := parseRelease(f.payload, leases)
		if err != nil {
			return leases, err
		}
		c.release(g)
		return g.leases, nil
	case KindReport:
		r, err := parseReport(f.payload)
		if err != nil {
			return leases, err
		}
		if s := c.node.stream(r.stream); s != nil {
			s.onReport(int(c.trainer), int(r.epoch), int(r.batch), r.losses)
		}
		return leases, nil
	}
	return leases, c.handleRare(f)
}

func (c *conn) handleRare(f frame) error {
	switch f.kind {
	case KindOpen:
		return c.open(f)
	case KindPlan:
		p := cursor{b: f.payload}
		stream, epoch, from := p.u32(), p.u32(), p.u32()
		if err := p.end(); err != nil {
			return err
		}
		c.asked = true
		if s := c.node.stream(stream); s != nil {
			s.onPlan(c, f.ticket, int(epoch), int(from))
		} else {
			c.fail(f.ticket, codeRequest, fmt.Sprintf("there is no data set number %d", stream))
		}
		return nil
	case KindMetric:
		return c.metric(f)
	case KindSave:
		p := cursor{b: f.payload}
		stream, epoch, batch := p.u32(), p.u32(), p.u32()
		if err := p.end(); err != nil {
			return err
		}
		if s := c.node.stream(stream); s != nil {
			s.onSave(c, f.ticket, int(epoch), int(batch))
		} else {
			c.fail(f.ticket, codeRequest, fmt.Sprintf("there is no data set number %d", stream))
		}
		return nil
	case KindWarm:
		return c.warm(f)
	case KindStatus:
		c.answerJSON(f, c.node.Status())
		return nil
	case KindShutdown:
		c.write(AppendBare(nil, KindShutdown+replyTo, f.ticket))
		c.node.stopOnce.Do(func() { close(c.node.stopped) })
		return nil
	}
	return fmt.Errorf("mpicache: a frame of kind %d: %w", f.kind, errFrame)
}

func (c *conn) warm(f frame) error {
	w, err := parseWarm(f.payload)
	if err != nil {
		return err
	}
	if s := c.node.stream(w.stream); s != nil {
		s.onWarm(c, f.ticket, w.ids)
	} else {
		c.fail(f.ticket, codeRequest, fmt.Sprintf("there is no data set number %d", w.stream))
	}
	return nil
}

func (c *conn) open(f frame) error {
	var spec Spec
	if err := json.Unmarshal(f.payload, &spec); err != nil {
		return fmt.Errorf("mpicache: OPEN: %w: %w", errFrame, err)
	}
	if uint32(spec.Trainer) != c.trainer {
		c.fail(f.ticket, codeRequest, fmt.Sprintf("trainer %d opens for trainer %d", c.trainer, spec.Trainer))
		return nil
	}
	for _, s := range c.node.streams {
		if s.data.Name != spec.Data {
			continue
		}
		if spec.Identity != s.data.Identity {
			c.fail(f.ticket, codeRequest, fmt.Sprintf("data set %s is not the one that trainer %d trains on: its identity is %s here, %s there; "+
				"start the training anew", spec.Data, spec.Trainer, s.data.Identity, spec.Identity))
			return nil
		}
		if err := s.onOpen(spec); err != nil {
			c.fail(f.ticket, codeRequest, err.Error())
			return nil
		}
		c.answerJSON(f, map[string]int{"stream": s.index, "batches": s.batches()})
		return nil
	}
	c.fail(f.ticket, codeRequest, fmt.Sprintf("there is no data set %q here", spec.Data))
	return nil
}

func (c *conn) metric(f frame) error {
	var m struct {
		Stream, Epoch int
		Name          string
		Value         float64
	}
	if err := json.Unmarshal(f.payload, &m); err != nil {
		return fmt.Errorf("mpicache: METRIC: %w: %w", errFrame, err)
	}
	if s := c.node.stream(uint32(m.Stream)); s != nil {
		s.onMetric(m.Epoch, m.Name, m.Value)
	}
	return nil
}

func (c *conn) answerJSON(f frame, v any) { c.write(appendJSON(nil, f.kind+replyTo, f.ticket, v)) }

func (c *conn) fail(ticket uint32, code uint16, sentence string) {
	c.write(appendError(nil, ticket, code, sentence))
}

// frameBuffered reports whether a whole frame waits in r.
func frameBuffered(r *bufio.Reader) bool {
	if r.Buffered() < frameHeadBytes {
		return false
	}
	head, err := r.Peek(frameHeadBytes)
	return err == nil && r.Buffered()-frameHeadBytes >= int(le.Uint32(head))
}

// cork holds back replies until the last of several requests is handled.
func (c *conn) cork(corked bool) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.corked = corked
}

// write sends whole frames, and those that were held back. A client that cannot be written to is left.
func (c *conn) write(b []byte) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.corked || len(c.out) > 0 {
		c.out = append(c.out, b...)
		b = c.out
	}
	if c.corked || len(b) == 0 {
		return
	}
	c.out = c.out[:0]
	_ = c.sock.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails when closed, and so does Write
	if _, err := c.sock.Write(b); err != nil {
		_ = c.sock.CloseWrite() // a client that reads again sees the end, and closes
	}
}

func (c *conn) get(g getFrame, ticket uint32) {
	if s := c.node.stream(g.stream); s != nil {
		s.onGet(c, ticket, int(g.epoch), int(g.batch))
		return
	}
	c.fail(ticket, codeRequest, fmt.Sprintf("there is no data set number %d", g.stream))
}

// release ends leases and takes down the tally that comes with them.
func (c *conn) release(g getFrame) {
	for _, id := range g.leases {
		c.mu.Lock()
		ref, ok := c.leases[id]
		delete(c.leases, id)
		c.mu.Unlock()
		if ok {
			ref.stream.release(ref.lease)
		}
	}
	if s := c.node.stream(g.tally.stream); s != nil {
		s.onTally(teller{c.trainer, c.worker}, g.tally, c.asked)
	}
}

// lease gives the client a lease; false when it is gone.
func (c *conn) lease(s *stream, lease uint32, ticket uint64) (id uint32, ok bool) {
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
	for _, ref := range leases {
		ref.stream.release(ref.lease)
	}
	for ticket, s := range waiting {
		s.withdraw(ticket)
	}
	c.node.connMu.Lock()
	delete(c.node.conns, c)
	c.node.connMu.Unlock()
}

// whose returns the number of the trainer that the client is or belongs to, ControlTrainer when it trains nothing or has not said so yet.
func (c *conn) whose() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trainer
}

// stream returns a data set's stream by its number, or nil.
func (n *Node) stream(index uint32) *stream {
	if index >= uint32(len(n.streams)) {
		return nil
	}
	return n.streams[index]
}
