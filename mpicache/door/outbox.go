package door

import (
	"iter"
	"slices"
	"sync"
	"time"
)

// outbox sends a client its replies without ever blocking on it: a goroutine sends what its socket
// does not accept at once, as long as the client keeps reading, and not too much is queued.
type outbox struct {
	sock   Socket
	beside Beside

	mu     sync.Mutex // protects the rest
	corked bool       // more requests have been read: their replies leave together
	rest   []byte     // to be sent
	// whole frames, each in pieces that are made when they are sent
	long    []iter.Seq[[]byte]
	sending bool // by the goroutine
	last    bool // nothing comes after what is queued
	over    bool // nothing more is sent
}

const (
	// writeTimeout is how long a client may go without reading anything that is sent to it.
	writeTimeout = 10 * time.Second
	// helloTimeout is how long a client may take to identify itself.
	helloTimeout = 30 * time.Second
	// maxUnread is how much may be queued when another reply is added.
	maxUnread = 16 << 20
	// maxLong is how many frames that are sent in pieces may be queued before a further one.
	maxLong = 1 << 10
	// writePiece is how much a client has to read within writeTimeout.
	writePiece = 1 << 20
)

// cork(true) holds replies back until cork(false), which is called when the last of several
// requests has been answered, or none can be.
func (o *outbox) cork(corked bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.corked = corked; !corked && len(o.rest) > 0 && !o.sending {
		rest := o.rest
		o.rest = o.rest[:0]
		o.send(rest)
	}
}

// write sends whole frames, or queues them. It does not retain b.
func (o *outbox) write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.over || o.last || len(b) == 0:
	case !o.corked && !o.sending:
		o.send(b)
	case len(o.rest) > maxUnread:
		o.end()
	default:
		o.rest = append(o.rest, b...)
	}
}

// stream makes the goroutine send a frame that is too large to queue, after everything that is
// queued.
func (o *outbox) stream(frame iter.Seq[[]byte]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.long) >= maxLong {
		o.end()
	}
	if o.over || o.last {
		return
	}
	if o.long = append(o.long, frame); !o.sending {
		o.sendBeside()
	}
}

// sendBeside starts the goroutine that sends what is queued.
func (o *outbox) sendBeside() {
	o.sending = true
	o.beside(o, "send what is queued", o.sendRest)
}

// send sends what the socket accepts at once, and makes the goroutine send a copy of the rest.
// Nothing must be queued before it.
func (o *outbox) send(b []byte) {
	n, err := o.sock.WriteNow(b)
	if err != nil {
		o.end()
		return
	}
	if n < len(b) {
		o.rest = append(o.rest[:0], b[n:]...)
		o.sendBeside()
	}
}

// sendRest sends what is queued.
func (o *outbox) sendRest() {
	for {
		o.mu.Lock()
		pieces := slices.Chunk(o.rest, writePiece)
		if len(o.rest) == 0 && len(o.long) > 0 {
			pieces, o.long = o.long[0], o.long[1:]
		} else if len(o.rest) == 0 || o.over {
			o.sending = false
			if o.last {
				o.end()
			}
			o.mu.Unlock()
			return
		}
		o.rest = nil
		o.mu.Unlock()
		for piece := range pieces {
			// fails when closed, and so does Write
			_ = o.sock.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := o.sock.Write(piece); err != nil {
				o.mu.Lock()
				o.end()
				o.mu.Unlock()
				break
			}
		}
		_ = o.sock.SetWriteDeadline(time.Time{}) // as above
	}
}

// hangUp closes the sending side after everything that is queued.
func (o *outbox) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last = true; !o.sending {
		o.end()
	}
}

// end stops sending to the client, and drops what is queued. A client that reads again sees the
// end, and closes.
func (o *outbox) end() {
	o.over, o.rest, o.long = true, nil, nil
	_ = o.sock.CloseWrite() // it may be closed
}
