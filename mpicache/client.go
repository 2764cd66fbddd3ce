package mpicache

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler"
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

	// Hello is the payload of HELLO's reply.
	Hello []byte
	// SlabFD is the slab's descriptor, or -1. The caller may map it; Close closes it.
	SlabFD int
}

// DoorError is an error reply.
type DoorError struct {
	Code     int // 1 protocol, 2 request, 3 not ready, 4 stopping, 5 training has begun
	Sentence string
}

func (e *DoorError) Error() string { return "mpicache: the door says: " + e.Sentence }

// thisProcess is this process's number at doors, and its family's.
//
//nolint:forbidigo // nothing is decided by it, and no two processes may share it
var thisProcess = rand.Uint64()

// Dial connects to the door at path as a trainer, or as ControlTrainer. timeout bounds every call;
// 0: none.
func Dial(
	path string, trainer, world uint32, worker uint64, timeout time.Duration,
) (*Client, error) {
	return dial(path, helloFrame{ProtocolVersion, trainer, world, worker, thisProcess, thisProcess},
		timeout)
}

func dial(path string, h helloFrame, timeout time.Duration) (*Client, error) {
	conn, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return nil, fmt.Errorf("mpicache: %w", err)
	}
	c := &Client{sock: conn.(*net.UnixConn), timeout: timeout, SlabFD: -1}
	if _, err := peerOf(c.sock); err != nil {
		return nil, errors.Join(fmt.Errorf("mpicache: the door %s: %w", path, err), c.Close())
	}
	if err := c.hello(h); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// hello sends HELLO, and receives the descriptor that comes with the first bytes of the reply.
func (c *Client) hello(h helloFrame) error {
	c.deadline()
	if _, err := c.sock.Write(appendHello(nil, 0, h)); err != nil {
		return fmt.Errorf("mpicache: %w", err)
	}
	head, oob := make([]byte, frameHeadBytes), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.sock.ReadMsgUnix(head, oob)
	if err != nil {
		return fmt.Errorf("mpicache: %w", err)
	}
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil &&
		len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			c.SlabFD = fds[0]
		}
	}
	c.r = bufio.NewReader(io.MultiReader(&oneRead{head[:n]}, c.sock))
	payload, err := c.read(KindHello, 0)
	c.Hello = append([]byte(nil), payload...)
	return err
}

// oneRead reads bytes that were read already.
type oneRead struct{ b []byte }

func (o *oneRead) Read(p []byte) (int, error) {
	if len(o.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.b)
	o.b = o.b[n:]
	return n, nil
}

func (c *Client) deadline() {
	if c.timeout > 0 {
		// fails when closed, and so does what follows
		_ = c.sock.SetDeadline(time.Now().Add(c.timeout))
	}
}

// Call sends a request and returns its reply's payload, which is valid until the next Call. A
// refusal is a *DoorError.
func (c *Client) Call(kind Kind, payload []byte) ([]byte, error) {
	c.ticket++
	if err := c.Send(kind, payload); err != nil {
		return nil, err
	}
	return c.read(kind, c.ticket)
}

// Send sends a frame that has no reply.
func (c *Client) Send(kind Kind, payload []byte) error {
	c.deadline()
	c.out = endFrame(append(appendFrame(c.out[:0], kind, c.ticket), payload...), 0)
	if _, err := c.sock.Write(c.out); err != nil {
		return fmt.Errorf("mpicache: %w", err)
	}
	return nil
}

func (c *Client) read(kind Kind, ticket uint32) ([]byte, error) {
	f, err := readFrame(c.r, &c.buf, func(Kind) (int, bool) { return maxReplyBytes, true })
	if err != nil {
		return nil, fmt.Errorf("mpicache: %w", err)
	}
	switch {
	case f.kind == KindError && len(f.payload) >= 4:
		return nil, &DoorError{int(le.Uint16(f.payload)), string(f.payload[4:])}
	case f.kind != kind+replyTo || f.ticket != ticket:
		return nil, fmt.Errorf("mpicache: a reply of kind %d to ticket %d, expected %d to %d",
			f.kind, f.ticket, kind+replyTo, ticket)
	}
	return f.payload, nil
}

// Welcome is a rank's reply to HELLO.
type Welcome struct {
	Rank    int           `json:"-"`
	Ranks   int           `json:"-"`
	Data    []WelcomeData `json:"data"`
	Session string        `json:"session"`
}

// WelcomeData is a data set that a rank serves.
type WelcomeData struct {
	Name    string `json:"name"`
	Samples int    `json:"samples"`
	Index   string `json:"index"` // file of the sample index
	Root    string `json:"root"`
}

// Welcome parses the reply to HELLO. It returns an error if the reply is damaged.
func (c *Client) Welcome() (Welcome, error) {
	h := cursor{b: c.Hello}
	h.u32()
	w := Welcome{Rank: int(h.u32()), Ranks: int(h.u32())}
	h.u64()
	if h.err != nil {
		return w, fmt.Errorf("mpicache: the reply to HELLO: %w", h.err)
	}
	if err := json.Unmarshal(h.b, &w); err != nil {
		return w, fmt.Errorf("mpicache: the reply to HELLO: %w", err)
	}
	return w, nil
}

// TrainingBegun is the code of the DoorError that Warm gets when it comes too late.
const TrainingBegun = codeBegun

// Warm has the rank read samples of a data set, named by its place in HELLO's list, into its
// memory, the first first. It returns when they are there, which takes as long as storage does,
// whatever the time-out, or when ctx ends; the client is of no use after that. A *DoorError of code
// TrainingBegun means that it comes too late.
func (c *Client) Warm(
	ctx context.Context, stream uint32, ids []scheduler.SampleID,
) (Warmed, error) {
	defer func(timeout time.Duration) { c.timeout = timeout }(c.timeout)
	c.timeout = 0
	_ = c.sock.SetDeadline(time.Time{}) // fails when closed, and so does what follows
	defer context.AfterFunc(ctx, func() { _ = c.sock.SetDeadline(time.Now()) })()
	p := le.AppendUint32(le.AppendUint32(nil, stream), uint32(len(ids)))
	for _, id := range ids {
		p = le.AppendUint32(p, uint32(id))
	}
	var w Warmed
	reply, err := c.Call(KindWarm, p)
	if ctx.Err() != nil {
		return w, context.Cause(ctx)
	}
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(reply, &w); err != nil {
		return w, fmt.Errorf("mpicache: the reply to WARM: %w", err)
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
