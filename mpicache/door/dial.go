package door

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Client is a connection to a door, for launchers, benchmarks and tests; training has the Python
// client. It has one caller at a time.
type Client struct {
	sock    *net.UnixConn
	r       *bufio.Reader
	buf     []byte
	out     []byte
	ticket  uint32
	timeout time.Duration
	welcome []byte // the payload of HELLO's reply

	// SlabFD is the slab's descriptor, or -1. The caller may map it; Close closes it.
	SlabFD int
}

// thisProcess identifies this process, and its family, at doors.
//
//nolint:forbidigo // it decides nothing, and no two processes may share it
var thisProcess = rand.Uint64()

// NewHello identifies this process as a trainer's worker, or as ControlTrainer.
func NewHello(trainer, world uint32, worker uint64) Hello {
	return Hello{Version, trainer, world, worker, thisProcess, thisProcess}
}

// Dial connects to the door at path. timeout bounds every call; 0: no bound.
func Dial(path string, h Hello, timeout time.Duration) (*Client, error) {
	conn, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	c := &Client{sock: conn.(*net.UnixConn), timeout: timeout, SlabFD: -1}
	if _, err := PeerOf(c.sock); err != nil {
		return nil, errors.Join(fmt.Errorf("door: %s: %w", path, err), c.Close())
	}
	if err := c.hello(h); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// hello sends HELLO, and receives the descriptor that comes with the first bytes of the reply.
func (c *Client) hello(h Hello) error {
	c.deadline()
	if _, err := c.sock.Write(AppendHello(nil, 0, h)); err != nil {
		return fmt.Errorf("door: %w", err)
	}
	head, oob := make([]byte, headBytes), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.sock.ReadMsgUnix(head, oob)
	if err != nil {
		return fmt.Errorf("door: %w", err)
	}
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil &&
		len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			c.SlabFD = fds[0]
		}
	}
	c.r = bufio.NewReader(io.MultiReader(bytes.NewReader(head[:n]), c.sock))
	payload, err := c.reply(KindHello)
	c.welcome = bytes.Clone(payload)
	return err
}

func (c *Client) deadline() {
	if c.timeout > 0 {
		// fails when closed, and so does what follows
		_ = c.sock.SetDeadline(time.Now().Add(c.timeout))
	}
}

// Call sends a request and returns its reply's payload, which is valid until the next Call. An
// error reply is an Error.
func (c *Client) Call(kind Kind, payload []byte) ([]byte, error) {
	c.ticket++
	if err := c.Send(kind, payload); err != nil {
		return nil, err
	}
	return c.reply(kind)
}

// Send sends a frame that has no reply.
func (c *Client) Send(kind Kind, payload []byte) error {
	c.deadline()
	c.out = AppendFrame(c.out[:0], kind, c.ticket, payload)
	if _, err := c.sock.Write(c.out); err != nil {
		return fmt.Errorf("door: %w", err)
	}
	return nil
}

// Receive returns the next reply, to whichever request, and an Error for an error reply.
func (c *Client) Receive() (Frame, error) {
	f, err := ReadReply(c.r, &c.buf)
	if err != nil {
		return f, fmt.Errorf("door: %w", err)
	}
	if f.Kind == KindError && len(f.Payload) >= 4 {
		no := Error{le.Uint16(f.Payload), string(f.Payload[4:])}
		return f, fmt.Errorf("the rank refused: %w", no)
	}
	return f, nil
}

// reply returns the payload of the reply to the newest request.
func (c *Client) reply(kind Kind) ([]byte, error) {
	f, err := c.Receive()
	if err == nil && (f.Kind != kind.Reply() || f.Ticket != c.ticket) {
		err = fmt.Errorf("door: a reply of kind %d to ticket %d, expected %d to %d", f.Kind,
			f.Ticket, kind.Reply(), c.ticket)
	}
	return f.Payload, err
}

// Welcome parses the reply to HELLO. It returns an error if the reply is damaged.
func (c *Client) Welcome() (Welcome, error) {
	w, err := parseWelcome(c.welcome)
	if err != nil {
		return w, fmt.Errorf("door: the reply to HELLO: %w", err)
	}
	return w, nil
}

// Close ends the connection.
func (c *Client) Close() error {
	if c.SlabFD >= 0 {
		_ = unix.Close(c.SlabFD) // it was a descriptor of this process
	}
	return c.sock.Close()
}
