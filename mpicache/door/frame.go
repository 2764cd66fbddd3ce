package door

import (
	"encoding/binary"
	"io"
	"math"

	"rankpool/mpicache/fields"
)

// The door's protocol, version 5, is specified in docs/wire/README.md, whose names are used here.
const (
	Version       = 5
	magic         = "rankpool"
	headBytes     = 12
	maxReplyBytes = 256 << 20
	maxTallyBytes = 72 // where samples are evaluated
	// ControlTrainer is the trainer number of a connection that trains nothing, such as the
	// launcher's.
	ControlTrainer = math.MaxUint32
)

// Kind is a frame's kind.
type Kind uint16

// The kinds of frames.
const (
	KindHello    Kind = 1
	KindOpen     Kind = 2
	KindPlan     Kind = 3
	KindGet      Kind = 4
	KindReport   Kind = 5
	KindRelease  Kind = 6
	KindMetric   Kind = 7
	KindSave     Kind = 8
	KindStatus   Kind = 9
	KindShutdown Kind = 10
	KindList     Kind = 11
	KindError    Kind = 99
)

// Reply returns the kind of the reply to a request of kind k.
func (k Kind) Reply() Kind { return k + 100 }

var le = binary.LittleEndian

// A Frame is a request or a reply.
type Frame struct {
	Kind    Kind
	Ticket  uint32
	Payload []byte // valid until the next Read with the same buffer
}

// AppendFrame appends a frame.
func AppendFrame(b []byte, kind Kind, ticket uint32, payload []byte) []byte {
	start := len(b)
	return endFrame(append(appendHead(b, kind, ticket), payload...), start)
}

// appendHead appends a frame's head; endFrame fills in the payload's length.
func appendHead(b []byte, kind Kind, ticket uint32) []byte {
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, uint16(kind))
	b = le.AppendUint16(b, 0)
	return le.AppendUint32(b, ticket)
}

// endFrame writes the length of the frame that begins at start and ends with b.
func endFrame(b []byte, start int) []byte {
	le.PutUint32(b[start:], uint32(len(b)-start-headBytes))
	return b
}

// Read reads a frame, with its payload in buf, which grows as needed. limit returns the largest
// payload size of a kind; false if the kind is unknown.
func Read(r io.Reader, buf *[]byte, limit func(Kind) (bytes int, ok bool)) (Frame, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	n, f := le.Uint32(head[:]), Frame{Kind: Kind(le.Uint16(head[4:])), Ticket: le.Uint32(head[8:])}
	most, ok := limit(f.Kind)
	if !ok {
		return Frame{}, Broken("a frame of kind %d", f.Kind)
	}
	if uint64(n) > uint64(most) {
		return Frame{}, Broken("a frame of kind %d with %d bytes, where %d are the most", f.Kind, n,
			most)
	}
	if err := f.fill(r, buf, int(n)); err != nil {
		return Frame{}, err
	}
	return f, nil
}

// ReadReply reads a frame from a rank.
func ReadReply(r io.Reader, buf *[]byte) (Frame, error) {
	return Read(r, buf, func(Kind) (int, bool) { return maxReplyBytes, true })
}

// fill reads the payload piece by piece, so that a false length costs no memory.
func (f *Frame) fill(r io.Reader, buf *[]byte, n int) error {
	const piece = 1 << 20
	*buf = (*buf)[:0]
	for len(*buf) < n {
		have, want := len(*buf), min(n-len(*buf), piece)
		for cap(*buf) < have+want {
			*buf = append((*buf)[:cap(*buf)], 0)
		}
		*buf = (*buf)[:have+want]
		if _, err := io.ReadFull(r, (*buf)[have:]); err != nil {
			return err
		}
	}
	f.Payload = *buf
	return nil
}

// end returns an error if a field of a payload was missing, or bytes are left over.
func end(p *fields.Reader) error {
	if !p.Whole() {
		return ErrFrame
	}
	return nil
}
