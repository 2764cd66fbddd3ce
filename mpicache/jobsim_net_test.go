package mpicache

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/client"
	"rankpool/mpicache/door"
)

// simTransport is the transport of a rank, with MPI's promises: messages from one rank to another
// arrive in order and whole, after a while, unless one of the ranks dies.
type simTransport struct {
	ranks  *simRanks
	number int
	handle func(from int, msg []byte)
	early  []func() // messages that came before Start
	pairs  map[simPair]*simTransfer
	hears  func(from int, sign []byte) // the rank's watch
}

// simSigns is the channel of a rank's watch. Its messages begin with simSign.
type simSigns struct{ *simTransport }

const simSign = 11

func (s simSigns) Start(hears func(from int, sign []byte)) { s.hears = hears }
func (s simSigns) Post(to int, msg []byte) {
	s.simTransport.Post(to, append([]byte{simSign}, msg...))
}

// simLink is the link from one rank to another, in one start of the cache.
type simLink struct {
	ranks    *simRanks
	from, to int
}

type simPair struct {
	from   int
	ticket uint32
}

// simTransfer is bytes on their way: a Put, a Take, or both.
type simTransfer struct {
	put, take         [][]byte
	putDone, takeDone func(error)
	both              int
}

func (t *simTransport) Rank() int { return t.number }
func (t *simTransport) Size() int { return t.ranks.size }

func (t *simTransport) Start(handle func(from int, msg []byte)) {
	t.handle = handle
	for _, deliver := range t.early {
		deliver()
	}
	t.early = nil
}

func (t *simTransport) Post(to int, msg []byte) {
	msg = bytes.Clone(msg)
	if t.ranks.job.plants("a message is lost", 400) && msg[0] != simSign {
		return
	}
	key := any(simLink{t.ranks, t.number, to})
	if t.ranks.job.plants("a message overtakes another", 60) {
		key = nil
	}
	t.ranks.send(t.number, to, key, func() {
		peer := t.ranks.all[to]
		if peer.transport.handle == nil {
			peer.transport.early = append(peer.transport.early, func() {
				peer.transport.handle(t.number, msg)
			})
			return
		}
		t.ranks.job.clock.trace.note(peer.name, "hears", t.number, int(msg[0]), len(msg))
		peer.transport.handle(t.number, msg)
	})
}

func (t *simTransport) transfer(from int, ticket uint32) *simTransfer {
	key := simPair{from, ticket}
	tr := t.pairs[key]
	if tr == nil {
		tr = &simTransfer{}
		t.pairs[key] = tr
	}
	if tr.both++; tr.both == 2 {
		delete(t.pairs, key)
	}
	return tr
}

func (t *simTransport) Put(to int, ticket uint32, segs [][]byte, done func(error)) {
	tr := t.ranks.all[to].transport.transfer(t.number, ticket)
	tr.put, tr.putDone = segs, done
	t.move(t.number, to, tr)
}

func (t *simTransport) Take(from int, ticket uint32, segs [][]byte, done func(error)) {
	tr := t.transfer(from, ticket)
	tr.take, tr.takeDone = segs, done
	t.move(from, t.number, tr)
}

// move moves the bytes when both sides are there. It may write to the taker's memory at any time
// before it reports that they have arrived.
func (t *simTransport) move(from, to int, tr *simTransfer) {
	if tr.both < 2 {
		return
	}
	ranks := t.ranks
	ranks.send(from, to, nil, func() {
		if ranks.all[from].dead { // and its memory is gone
			return
		}
		var err error
		if len(tr.put) != len(tr.take) {
			err = errors.New("another number of samples")
		}
		for i := range tr.take {
			if err == nil && copy(tr.take[i], tr.put[i]) != len(tr.put[i]) {
				err = errors.New("other lengths")
			}
		}
		if ranks.job.plants("a byte flips between nodes", 100) && len(tr.take) > 0 {
			tr.take[0][0] ^= 1
		}
		ranks.send(to, from, nil, func() { tr.putDone(err) })
		tr.takeDone(err)
	})
}

func (t *simTransport) Close() error { return nil }

// send calls do at rank to when a message from rank from arrives. While the link between them is
// cut, nothing arrives.
func (r *simRanks) send(from, to int, key any, do func()) {
	job := r.job
	d := job.clock.upTo(400 * time.Microsecond)
	if job.slow > job.clock.now && job.clock.chance(3) {
		d += job.clock.upTo(700 * time.Millisecond)
	}
	if cut := r.cut[[2]int{min(from, to), max(from, to)}]; cut > job.clock.now {
		d += cut - job.clock.now
	}
	job.clock.inOrder(key, d, r.all[to].simProcess, "", func() {
		link := simLink{r, from, to}
		if r.all[from].dead && from != to { // it was sent, or it and all after it never will be
			r.broken[link] = r.broken[link] || job.clock.chance(2)
		}
		if !r.broken[link] {
			do()
		}
	})
}

// simConn is a connection between a client and a door, both ends.
type simConn struct {
	job    *simJob
	rank   *simRank
	client *simProcess
	conn   *client.Conn // the rank's end
	in     []byte
	closed bool // nothing more reaches the rank
	left   bool // the rank has stopped reading

	reply func(door.Frame) // a whole frame has arrived; the payload is valid during the call
	lost  func()           // it ended
	over  bool             // the client knows that it ended
	out   []byte           // a frame that has not arrived whole
}

// dial connects a client to a rank's door. It returns nil where there is no door.
func (r *simRank) dial(from *simProcess) *simConn {
	if r.dead || !r.serves {
		return nil
	}
	c := &simConn{job: r.job, rank: r, client: from}
	c.conn = r.node.clients.New(c)
	c.conn.Conn = door.NewConn(c, r.node.cfg.Log, r.node.Beside, simHandler{c.conn, c})
	c.conn.Conn.PID = simPID
	if c.conn.Enter() != nil {
		return nil
	}
	r.conns = append(r.conns, c)
	return c
}

// say sends bytes to the rank.
func (c *simConn) say(b []byte) {
	if c.over {
		return
	}
	clock := c.job.clock
	clock.inOrder(c, clock.upTo(60*time.Microsecond), c.rank.simProcess, "", func() {
		if !c.closed && !c.left {
			c.in = append(c.in, b...)
			c.serve()
		}
	})
}

// serve handles the frames that have come, as door.Conn.Serve does.
func (c *simConn) serve() {
	for len(c.in) > 0 && !c.closed && !c.left {
		r := bytes.NewReader(c.in)
		err := c.conn.Next(r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return // more will arrive
		}
		c.in = c.in[len(c.in)-r.Len():]
		if err != nil {
			c.left = true
			c.conn.Explain(err)
			c.end()
		}
	}
	c.rank.lookAtDoor()
}

// simHandler is the rank behind a connection, which may have been given a flaw.
type simHandler struct {
	*client.Conn
	sim *simConn
}

func (h simHandler) Handle(f door.Frame) error {
	job := h.sim.job
	job.clock.trace.note(h.sim.rank.name, "frame", int(h.Trainer), int(f.Kind))
	if job.unchecked(h.sim, f) {
		return nil
	}
	return h.Conn.Handle(f)
}

// hangUp ends the connection from the client's side.
func (c *simConn) hangUp() {
	if c.over {
		return
	}
	c.over = true
	c.job.clock.inOrder(c, c.job.clock.upTo(60*time.Microsecond), c.rank.simProcess, "",
		func() { c.close() })
}

func (c *simConn) close() {
	if !c.closed {
		c.closed = true
		c.conn.Close()
	}
}

// end lets the client see the connection's end.
func (c *simConn) end() {
	c.job.clock.inOrder(&c.out, c.job.clock.upTo(60*time.Microsecond), c.client, "", func() {
		if !c.over {
			c.over = true
			c.lost()
		}
	})
}

// The following methods are the rank's socket.

func (c *simConn) WriteNow(b []byte) (int, error) {
	if c.closed {
		return 0, net.ErrClosed
	}
	b = bytes.Clone(b)
	c.job.clock.inOrder(&c.out, c.job.clock.upTo(60*time.Microsecond), c.client, "", func() {
		if c.over {
			return
		}
		c.out = append(c.out, b...)
		for !c.over {
			r := bytes.NewReader(c.out)
			var buf []byte
			f, err := door.ReadReply(r, &buf)
			if err != nil {
				return // more will arrive
			}
			c.out = c.out[len(c.out)-r.Len():]
			c.reply(f)
		}
	})
	return len(b), nil
}

func (c *simConn) WriteMsgUnix(b, _ []byte, _ *net.UnixAddr) (int, int, error) {
	n, err := c.WriteNow(b)
	return n, 0, err
}

func (c *simConn) Close() error {
	if !c.closed && !c.rank.dead { // the goroutine that reads will notice
		c.job.clock.after(0, c.rank.simProcess, "", func() { c.close() })
		c.end()
	}
	return nil
}

func (c *simConn) CloseWrite() error                { c.end(); return nil }
func (c *simConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *simConn) Write(b []byte) (int, error)      { return c.WriteNow(b) }
func (c *simConn) SetReadDeadline(time.Time) error  { return nil }
func (c *simConn) SetWriteDeadline(time.Time) error { return nil }
func (c *simConn) Peer() (*unix.Ucred, error)       { return &unix.Ucred{Pid: simPID}, nil }
