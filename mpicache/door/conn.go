package door

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A Handler is the rank behind the door, for one client. The goroutine that serves the client calls
// its methods.
//
// Nothing that a client sends is trusted. Read reads no more bytes than a frame of its kind needs,
// and the parsers check that all fields are there; the Handler checks the numbers in them.
type Handler interface {
	// Enter admits a client before its HELLO, or returns the reason why not.
	Enter() error
	// Greet receives the client's HELLO and returns the answer to it, and the descriptor of the slab,
	// which the Handler keeps; -1 if there is no slab.
	Greet(h Hello) (w Welcome, slabFD int)
	// Limits returns the limits for the next frame.
	Limits() Limits
	// Handle does what a frame asks for. An Error is sent as the reply. Any other error, or an Error
	// for a REPORT, which has no reply, ends the connection; the client gets its text if it is an
	// Error or wraps ErrFrame.
	Handle(f Frame) error
	// Close is called once, when the client is gone.
	Close()
}

// Beside runs f concurrently with the caller, which may hold a lock. A simulation may start
// functions with the same key in order.
type Beside func(key any, what string, f func())

// Conn is the rank's end of a connection. All methods but Serve and Next may be called
// concurrently.
type Conn struct {
	PID int32 // of the client; 0: it is in another PID namespace

	sock    Socket
	log     *slog.Logger
	handler Handler
	replies outbox
	buf     []byte
	greeted bool
	trainer uint32
}

// NewConn returns the rank's end of a connection, which Serve serves.
func NewConn(sock Socket, log *slog.Logger, beside Beside, handler Handler) *Conn {
	return &Conn{
		sock: sock, log: log, handler: handler, replies: outbox{sock: sock, beside: beside},
		trainer: ControlTrainer,
	}
}

// Serve reads frames until the client is gone or breaks the protocol.
func (c *Conn) Serve() {
	defer c.handler.Close()
	cred, err := c.sock.Peer()
	if err == nil {
		c.PID = cred.Pid
		err = c.handler.Enter()
	}
	if err != nil {
		c.log.Warn("a client of the door was not let in", "error", err)
		c.Write(AppendError(nil, 0, Error{CodeRequest, err.Error()}))
		// fails when closed, and so does what follows
		_ = c.sock.SetReadDeadline(time.Now().Add(helloTimeout))
		c.linger()
		return
	}
	if c.Explain(c.serve(bufio.NewReaderSize(c.sock, 16<<10))) {
		c.linger()
	}
}

// serve reads frames from r and handles them, until one fails or r ends.
func (c *Conn) serve(r *bufio.Reader) error {
	for {
		if err := c.Next(r); err != nil {
			c.replies.cork(false)
			return err
		}
	}
}

// Next reads a frame from r, and handles it. The first one must be HELLO.
func (c *Conn) Next(r io.Reader) error {
	if !c.greeted {
		return c.greet(r)
	}
	f, err := Read(r, &c.buf, c.handler.Limits().Payload)
	if err != nil {
		return err
	}
	if frameBuffered(r) {
		c.replies.cork(true)
	} else {
		defer c.replies.cork(false)
	}
	err = c.handler.Handle(f)
	var no Error
	if errors.As(err, &no) && f.Kind != KindReport { // no client waits for a reply to REPORT
		c.Write(AppendError(nil, f.Ticket, no))
		return nil
	}
	return err
}

// frameBuffered reports whether a whole frame waits in r.
func frameBuffered(r io.Reader) bool {
	b, ok := r.(*bufio.Reader)
	if !ok || b.Buffered() < headBytes {
		return false
	}
	head, err := b.Peek(headBytes)
	return err == nil && b.Buffered()-headBytes >= int(le.Uint32(head))
}

// greet handles HELLO and replies with the slab and the data sets.
func (c *Conn) greet(r io.Reader) error {
	if err := c.sock.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	f, err := Read(r, &c.buf, Limits{}.Payload)
	if err == nil {
		err = c.sock.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return err
	}
	if f.Kind != KindHello {
		return Broken("a first frame of kind %d", f.Kind)
	}
	h, err := ParseHello(f.Payload)
	if err == nil {
		err = h.check()
	}
	if err != nil {
		return err
	}
	c.greeted, c.trainer = true, h.Trainer
	w, slabFD := c.handler.Greet(h)
	return c.writeWithSlab(appendWelcome(nil, f.Ticket, w), slabFD)
}

// writeWithSlab sends b, and the slab's descriptor with its first bytes. A frame that is larger
// than the socket's buffer is sent piece by piece, as fast as the client reads.
func (c *Conn) writeWithSlab(b []byte, slabFD int) error {
	var oob []byte
	if slabFD >= 0 {
		oob = unix.UnixRights(slabFD)
	}
	if err := c.sock.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	n, _, err := c.sock.WriteMsgUnix(b, oob, nil)
	if err == nil {
		c.Write(b[n:])
	}
	return errors.Join(err, c.sock.SetWriteDeadline(time.Time{}))
}

// Write sends whole frames, without waiting for the client. It does not retain b.
func (c *Conn) Write(b []byte) { c.replies.write(b) }

// Stream sends a frame in pieces, each of which is valid until the next one, without waiting for
// the client.
func (c *Conn) Stream(frame iter.Seq[[]byte]) { c.replies.stream(frame) }

// Reply answers a request with v as JSON.
func (c *Conn) Reply(f Frame, v any) { c.Write(AppendJSON(nil, f.Kind.Reply(), f.Ticket, v)) }

// Explain sends a client that breaks the protocol the reason why its connection ends. It returns
// false if the client is gone.
func (c *Conn) Explain(err error) bool {
	no := Error{CodeProtocol, err.Error()}
	switch {
	case errors.As(err, &no):
	case errors.Is(err, ErrFrame):
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return false
	default:
		c.log.Debug("a client of the door is gone", "trainer", c.trainer, "error", err)
		return false
	}
	c.log.Warn("a client of the door was refused", "trainer", int32(c.trainer), "error", err)
	c.Write(AppendError(nil, 0, no))
	return true
}

// linger hangs up, and returns when the client has done so too: until then it may read what it has
// leased.
func (c *Conn) linger() {
	c.replies.hangUp()
	_, _ = io.Copy(io.Discard, c.sock) // a client that is gone fails to send more
}

// HangUp ends the connection: Serve returns.
func (c *Conn) HangUp() { _ = c.sock.Close() } // it may be closed already
