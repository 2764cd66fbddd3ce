package mpicache

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outbox sends a client its replies without ever blocking on it: a goroutine sends what its socket
// does not accept at once, as long as the client keeps reading, and not too much is queued.
type outbox struct {
	sock *net.UnixConn
	raw  syscall.RawConn // its

	mu      sync.Mutex // protects the rest
	corked  bool       // more requests have been read: their replies leave together
	rest    []byte     // to be sent
	sending bool       // by the goroutine
	over    bool       // the client is left
}

const (
	// writeTimeout is how long a client may go without reading anything that is sent to it.
	writeTimeout = 10 * time.Second
	// helloTimeout is how long a client may take to identify itself.
	helloTimeout = 30 * time.Second
	// maxUnread is how much may be queued before a further reply. A plan is larger, and queued
	// alone.
	maxUnread = 16 << 20
	// writePiece is how much a client has to read within writeTimeout.
	writePiece = 1 << 20
)

// cork holds replies back, until it is called with false: the last of several requests has been
// answered.
func (o *outbox) cork(corked bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.corked = corked; !corked && len(o.rest) > 0 && !o.sending {
		rest := o.rest
		o.rest = o.rest[:0]
		o.send(rest, len(rest) > writePiece)
	}
}

// write sends whole frames, or queues them. It does not retain b.
func (o *outbox) write(b []byte) { o.put(b, false) }

// give is write, but takes b over: a plan is large, and is not copied.
func (o *outbox) give(b []byte) { o.put(b, true) }

func (o *outbox) put(b []byte, own bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.over || len(b) == 0:
	case !o.corked && !o.sending:
		o.send(b, own)
	case own && len(o.rest) == 0:
		o.rest = b
	case len(o.rest) > maxUnread:
		o.end()
	default:
		o.rest = append(o.rest, b...)
	}
}

// send sends what the socket takes at once, and has the goroutine send the rest, of a copy unless b
// is its own. There is nothing before it.
func (o *outbox) send(b []byte, own bool) {
	n, err := o.now(b)
	if err != nil {
		o.end()
		return
	}
	if n < len(b) {
		rest := b[n:]
		if !own {
			rest = append(o.rest[:0], rest...)
		}
		o.rest, o.sending = rest, true
		go o.sendRest()
	}
}

// now sends what the socket accepts at once.
func (o *outbox) now(b []byte) (n int, err error) {
	failed := o.raw.Write(func(fd uintptr) bool {
		for {
			n, err = unix.Write(int(fd), b)
			if err != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case failed != nil:
		return 0, failed
	case err == unix.EAGAIN:
		return 0, nil
	}
	return max(n, 0), err
}

func (o *outbox) sendRest() {
	var b []byte
	for {
		o.mu.Lock()
		if b, o.rest = o.rest, nil; len(b) == 0 || o.over {
			o.sending = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		for len(b) > 0 {
			piece := b[:min(len(b), writePiece)]
			// fails when closed, and so does Write
			_ = o.sock.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := o.sock.Write(piece); err != nil {
				o.mu.Lock()
				o.end()
				o.mu.Unlock()
				break
			}
			b = b[len(piece):]
		}
		_ = o.sock.SetWriteDeadline(time.Time{}) // as above
	}
}

// end leaves a client that cannot be written to; one that reads again sees the end, and closes.
func (o *outbox) end() {
	o.over, o.rest = true, nil
	_ = o.sock.CloseWrite() // it may be closed
}

// enter admits a client, unless there are too many connections of this rank or of its process.
func (n *Node) enter(c *conn) error {
	n.connMu.Lock()
	defer n.connMu.Unlock()
	same := 0
	for other := range n.conns {
		if other.pid == c.pid && c.pid != 0 {
			same++
		}
	}
	switch {
	case len(n.conns) >= maxConns:
		return fmt.Errorf("this rank has %d connections, and takes no more", len(n.conns))
	case same >= maxConnsOfOne:
		return fmt.Errorf("process %d has %d connections to this rank, and gets no more", c.pid,
			same)
	}
	n.conns[c] = struct{}{}
	return nil
}
