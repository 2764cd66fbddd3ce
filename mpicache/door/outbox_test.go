package door

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestLastWords checks that the last frame reaches a client even if the one before is still being
// sent.
func TestLastWords(t *testing.T) {
	ours, theirs := socketPair(t)
	o := outbox{sock: ours, beside: goBeside}
	begun, rest := make(chan struct{}), make(chan struct{})
	o.stream(func(yield func([]byte) bool) {
		close(begun)
		<-rest
		yield([]byte("a plan, "))
	})
	<-begun
	o.write([]byte("and why it was the last"))
	o.hangUp()
	o.write([]byte(", but for this"))
	close(rest)
	if err := theirs.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(theirs)
	if want := "a plan, and why it was the last"; err != nil || string(got) != want {
		t.Errorf("the client reads %q, %v; want %q", got, err, want)
	}
}

// TestClientThatNeverReads checks that a rank gives up a client when too much waits for it.
func TestClientThatNeverReads(t *testing.T) {
	ours, theirs := socketPair(t)
	o := outbox{sock: ours, beside: goBeside}
	frame := make([]byte, 1<<20)
	for range 2*maxUnread>>20 + 4 { // as much may be on its way
		o.write(frame)
	}
	o.mu.Lock()
	over, left := o.over, len(o.rest)
	o.mu.Unlock()
	if !over || left != 0 {
		t.Errorf("%d bytes wait for a client that never reads", left)
	}
	if err := theirs.Close(); err != nil {
		t.Error(err)
	}
	o.write(frame) // the reader has gone
}

// TestPlansThatNobodyReads checks that a client is also dropped when too many long frames wait for
// it.
func TestPlansThatNobodyReads(t *testing.T) {
	ours, _ := socketPair(t)
	o := outbox{sock: ours, beside: goBeside}
	blocked := make(chan struct{})
	defer close(blocked)
	for range maxLong + 2 { // one is being sent
		o.stream(func(func([]byte) bool) { <-blocked })
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over || len(o.long) != 0 {
		t.Errorf("%d frames wait for a client that never reads", len(o.long))
	}
}

// TestLongFrames checks that what is sent in pieces arrives whole, and so does what is written
// meanwhile.
func TestLongFrames(t *testing.T) {
	ours, theirs := socketPair(t)
	o := outbox{sock: ours, beside: goBeside}
	const pieces, size, long, short = 300, 10_000, 3, 40
	for name := range byte(long) {
		o.stream(func(yield func([]byte) bool) {
			piece := bytes.Repeat([]byte{name}, size)
			for range pieces {
				if !yield(piece) {
					t.Error("a frame is not sent to its end")
					return
				}
			}
		})
		for range short {
			o.write([]byte{long, long})
		}
	}
	got := make([]byte, long*(pieces*size+short*2))
	if _, err := io.ReadFull(theirs, got); err != nil {
		t.Fatal(err)
	}
	for len(got) > 0 {
		n := pieces * size
		if got[0] == long {
			n = 2
		}
		if !bytes.Equal(got[:n], bytes.Repeat(got[:1], n)) {
			t.Fatalf("a frame of %d bytes is not whole", n)
		}
		got = got[n:]
	}
}

func goBeside(_ any, _ string, f func()) { go f() }

// socketPair returns both ends of a connection, the rank's first.
func socketPair(t *testing.T) (here Socket, there *net.UnixConn) {
	t.Helper()
	listener, err := net.ListenUnix("unix",
		&net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	there, err = net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), there.Close() }) // a test may have closed them
	return &unixSocket{ours, raw}, there
}
