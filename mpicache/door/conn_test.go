package door

import (
	"bufio"
	"bytes"
	"testing"
)

// TestRepliesToSeveralRequestsLeaveTogether checks that requests that were read together are
// answered by one write to the socket, even if the connection then ends.
func TestRepliesToSeveralRequestsLeaveTogether(t *testing.T) {
	ours, _ := socketPair(t)
	var two, three []byte
	for ticket := range uint32(2) {
		two = AppendFrame(two, KindStatus, ticket, nil)
	}
	three = append(AppendFrame(three, KindStatus, 2, nil), two...)
	for name, c := range map[string]struct {
		requests []byte
		breaks   bool
		want     int // replies in the only write
	}{
		"one":        {two[:len(two)/2], false, 1},
		"two":        {two, false, 2},
		"three":      {three, false, 3},
		"two, break": {three, true, 2},
	} {
		sock := &countingSocket{Socket: ours}
		h := &echo{breakAt: 3}
		if !c.breaks {
			h.breakAt = 0
		}
		h.conn = NewConn(sock, nil, goBeside, h)
		h.conn.greeted = true
		r := bufio.NewReader(bytes.NewReader(c.requests))
		h.conn.serve(r)
		if len(sock.writes) != 1 || sock.writes[0] != c.want*headBytes {
			t.Errorf("%s: writes of %v bytes, want one of %d replies of %d", name, sock.writes,
				c.want, headBytes)
		}
	}
}

// countingSocket records the size of each write.
type countingSocket struct {
	Socket
	writes []int
}

func (s *countingSocket) WriteNow(b []byte) (int, error) {
	s.writes = append(s.writes, len(b))
	return len(b), nil
}

// echo answers each frame, and breaks off at one.
type echo struct {
	Handler
	conn            *Conn
	breakAt, handed int
}

func (e *echo) Limits() Limits { return Limits{} }

func (e *echo) Handle(f Frame) error {
	if e.handed++; e.handed == e.breakAt {
		return Broken("a frame too many")
	}
	e.conn.Write(AppendFrame(nil, f.Kind.Reply(), f.Ticket, nil))
	return nil
}
