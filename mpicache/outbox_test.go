package mpicache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestClientThatDoesNotRead has a trainer wait for its plan and ask for so much beside it that its
// socket is full: the other one has its plan nevertheless, and that one all its replies as soon as
// it reads.
func TestClientThatDoesNotRead(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	var both [2]*trainer
	for r := range both {
		tr, err := cl.trainer(r, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close()
		both[r] = tr
	}
	full, other := both[0], both[1]
	if err := full.open("uniform", 4); err != nil {
		t.Fatal(err)
	}
	if err := full.Send(KindPlan, u32s(0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	const statuses = 3000 // of some 700 bytes each
	for range statuses {
		if err := full.Send(KindStatus, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.open("uniform", 4); err != nil {
		t.Fatal(err)
	}
	if _, err := other.plan(0); err != nil {
		t.Fatal(err)
	}
	replies := map[Kind]int{}
	for range statuses + 1 {
		full.deadline()
		f, err := readFrame(full.r, &full.buf,
			func(Kind) (int, bool) { return maxReplyBytes, true })
		if err != nil {
			t.Fatalf("after %v: %v", replies, err)
		}
		replies[f.kind]++
	}
	if replies[KindPlan+replyTo] != 1 || replies[KindStatus+replyTo] != statuses {
		t.Errorf("%v", replies)
	}
}

// TestLastWords reach a client also when the frame before is still being sent.
func TestLastWords(t *testing.T) {
	ours, theirs := socketPair(t)
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	o := outbox{sock: &unixSocket{ours, raw}, beside: realWorld{}.beside}
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

// TestClientThatNeverReads is left when too much waits for it.
func TestClientThatNeverReads(t *testing.T) {
	ours, theirs := socketPair(t)
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	o := outbox{sock: &unixSocket{ours, raw}, beside: realWorld{}.beside}
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
	o.write(frame) // nobody is there
}

// TestLongFrames: what is sent in pieces arrives whole, and so does what is written meanwhile.
func TestLongFrames(t *testing.T) {
	ours, theirs := socketPair(t)
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	o := outbox{sock: &unixSocket{ours, raw}, beside: realWorld{}.beside}
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

func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	door, err := net.ListenUnix("unix",
		&net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	there, err := net.DialUnix("unix", nil, door.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	here, err := door.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() }) // a test may have
	return here, there
}

// TestConnectionsAreBounded fills a rank with connections: who comes then hears why not, and comes
// in when one has left.
func TestConnectionsAreBounded(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	n := cl.nodes[0]
	others := make([]*conn, maxConns)
	n.connMu.Lock()
	for i := range others {
		others[i] = &conn{pid: int32(i + 1e6), trainer: ControlTrainer}
		n.conns[others[i]] = struct{}{}
	}
	n.connMu.Unlock()
	refusedAt := func(want string) {
		t.Helper()
		_, err := Dial(filepath.Join(cl.dirs[0], doorName), ControlTrainer, 0, 0, 20*time.Second)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the door says %v, want %q", err, want)
		}
	}
	refusedAt(fmt.Sprintf("this rank has %d connections", maxConns))
	first := cl.nodes[0].conns
	n.connMu.Lock()
	for _, c := range others {
		delete(first, c)
	}
	n.connMu.Unlock()
	c := cl.connect(ControlTrainer, 0, 0)
	n.connMu.Lock()
	var pid int32
	for c := range n.conns {
		pid = c.pid
	}
	for i := range maxConnsOfOne - 1 {
		others[i].pid = pid
		n.conns[others[i]] = struct{}{}
	}
	n.connMu.Unlock()
	refusedAt(fmt.Sprintf("process %d has %d connections", pid, maxConnsOfOne))
	n.connMu.Lock()
	for _, c := range others {
		delete(n.conns, c)
	}
	n.connMu.Unlock()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestTwoHundredClients has two hundred trainers, each with a worker that reads what it reads, get
// the stream that one gets, while others say what they may not.
func TestTwoHundredClients(t *testing.T) {
	const world, epochs, samples = 200, 2, 1000
	alone := newCluster(t, 1, samples, 1<<16)
	want := alone.train(1, world, epochs, "pads")
	alone.close()
	cl := newCluster(t, 2, samples, 1<<15)
	cl.between = func(epoch, b int) {
		for r := range world {
			dir := cl.dirs[r%2]
			c, err := Dial(filepath.Join(dir, doorName), uint32(r), world, 7, 20*time.Second)
			if err != nil {
				t.Error(err)
				continue
			}
			spec := Spec{
				Data: "train", Sampler: "pads", Seed: 1, BatchSize: 1, Trainer: r,
				World: world,
			}
			text, err := json.Marshal(spec)
			if err == nil {
				_, err = c.Call(KindOpen, text)
			}
			if err == nil && r%2 == 0 {
				_, err = c.Call(KindGet, tally{}.append(u32s(0, uint32(epoch), uint32(b), 0)))
			} else if err == nil {
				err = c.Send(KindReport, u32s(0, uint32(epoch), no, 0))
			}
			if err != nil {
				t.Errorf("trainer %d: %v", r, err)
			}
			_ = c.Close() // the door may have closed it
		}
	}
	got := cl.train(world, 1, epochs, "pads")
	cl.close()
	if !slices.Equal(got, want) {
		t.Error("the stream differs")
	}
}
