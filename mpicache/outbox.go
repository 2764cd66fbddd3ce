package mpicache

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outbox sends a client its replies. Nobody waits for a client that does not read: what its socket does not take at once a
// goroutine sends, as long as the client takes some, and there is not too much of it.
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
	// writeTimeout is how long a client may take nothing of what is sent to it.
	writeTimeout = 10 * time.Second
	// helloTimeout is how long a client may take to say who it is.
	helloTimeout = 30 * time.Second
	// maxUnread is how much may lie here before a further reply. A plan is larger, and alone.
	maxUnread = 16 << 20
	// writePiece is what a client has to take within writeTimeout.
	writePiece = 1 << 20
)

// cork holds replies back, until it is called with false: the last of several requests has been answered.
func (o *outbox) cork(corked bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.corked = corked; !corked && len(o.rest) > 0 && !o.sending {
		rest := o.rest
		o.rest = o.rest[:0]
		o.send(rest)
	}
}

// write sends whole frames, or has them sent. It keeps nothing of b.
func (o *outbox) write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.over || len(b) == 0:
	case !o.corked && !o.sending:
		o.send(b)
	case len(o.rest) > maxUnread:
		o.end()
	default:
		o.rest = append(o.rest, b...)
	}
}

// send sends what the socket takes at once, and has the goroutine send the rest. There is nothing before it.
func (o *outbox) send(b []byte) {
	n, err := o.now(b)
	if err != nil {
		o.end()
		return
	}
	if n < len(b) {
		o.rest, o.sending = append(o.rest[:0], b[n:]...), true
		go o.sendRest()
	}
}

// now sends what the socket takes at once.
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
			_ = o.sock.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails when closed, and so does Write
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

// enter lets a client in, if there are not too many: of this rank, or of its process.
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
		return fmt.Errorf("process %d has %d connections to this rank, and gets no more", c.pid, same)
	}
	n.conns[c] = struct{}{}
	return nil
}
