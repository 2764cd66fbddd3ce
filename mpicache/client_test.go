package mpicache

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/mpicache/door/doortest"
)

// talk sends raw bytes to a door and returns all that comes back.
func talk(t *testing.T, c *cluster, raw []byte) []byte {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(c.dirs[0], doorName))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(raw); err != nil {
		return nil // refused already
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return nil
	}
	var out bytes.Buffer
	_, _ = out.ReadFrom(conn) // a reset is an answer too
	return out.Bytes()
}

// TestGarbageAtTheDoor checks that a node survives whatever it receives.
func TestGarbageAtTheDoor(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	golden := doortest.GoldenFrames(t, "../docs/wire/frames.txt")
	rng := rand.New(rand.NewPCG(1, 2))
	var frames [][]byte
	for name, raw := range golden {
		if name != "open" { // a trainer may send a well-formed OPEN
			frames = append(frames, raw)
		}
	}
	for range 300 {
		raw := bytes.Clone(golden["hello"])
		for range rng.IntN(4) {
			raw = append(raw, frames[rng.IntN(len(frames))]...)
		}
		for range rng.IntN(5) {
			raw[rng.IntN(len(raw))] = byte(rng.Uint32())
		}
		talk(t, cl, raw[:rng.IntN(len(raw)+1)])
	}
	if got := cl.train(1, 8, 1,
		"sequential"); got[0] != "[0 1 2 3 4 5 6 7]\n[8 9 10 11 12 13 14 15]\n"+
		"[16 17 18 19 20 21 22 23]\n" {
		t.Errorf("after garbage, training gets %q", got)
	}
}

func TestOtherVersion(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	raw := bytes.Clone(doortest.GoldenFrames(t, "../docs/wire/frames.txt")["hello"])
	raw[12+len("rankpool")] = 9 // behind its head
	got := string(talk(t, cl, raw))
	want := fmt.Sprint("the client speaks version 9 of the protocol, this rank version ", door.Version)
	if !strings.Contains(got, want) {
		t.Errorf("the door replied %q", got)
	}
}

// TestLargeHello checks that a reply to HELLO that is larger than a socket's buffer arrives whole,
// with the slab.
func TestLargeHello(t *testing.T) {
	name := strings.Repeat("n", 4<<20)
	cl := newCluster(t, 1, 24, 1<<16, func(cfg *Config) { cfg.Session = name })
	defer cl.close()
	tr := cl.mustTrainer(t, 0, 1)
	defer tr.close()
	if w, err := tr.Welcome(); err != nil || w.Session != name {
		t.Errorf("a session of %d bytes came, want %d (%v)", len(w.Session), len(name), err)
	}
}

// TestClientThatDoesNotRead makes a trainer wait for its plan while it sends so many other requests
// that its socket is full. The other trainer still gets its plan, and this one gets all its replies
// as soon as it reads.
func TestClientThatDoesNotRead(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	var both [2]*trainer
	for r := range both {
		tr := cl.mustTrainer(t, r, 2)
		defer tr.close()
		both[r] = tr
	}
	full, other := both[0], both[1]
	if err := full.open("uniform", 4); err != nil {
		t.Fatal(err)
	}
	if err := full.Send(door.KindPlan, u32s(0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	const statuses = 3000 // of some 700 bytes each
	for range statuses {
		if err := full.Send(door.KindStatus, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.open("uniform", 4); err != nil {
		t.Fatal(err)
	}
	if _, err := other.plan(0); err != nil {
		t.Fatal(err)
	}
	replies := map[door.Kind]int{}
	for range statuses + 1 {
		f, err := full.Receive()
		if err != nil {
			t.Fatalf("after %v: %v", replies, err)
		}
		replies[f.Kind]++
	}
	if replies[door.KindPlan.Reply()] != 1 || replies[door.KindStatus.Reply()] != statuses {
		t.Errorf("%v", replies)
	}
}
