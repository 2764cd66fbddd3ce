package mpicache

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/mpicache/transport"
)

// muted is a transport that does not send messages of one byte.
type muted struct{ transport.Transport }

func (m muted) Post(to int, msg []byte) {
	if len(msg) > 1 {
		m.Transport.Post(to, msg)
	}
}

// TestLameDucksServe asks all ranks to end: they serve until their trainers have left, and a rank
// that is asked when another has ended does not consider that one dead.
func TestLameDucksServe(t *testing.T) {
	cl := newCluster(t, 2, 240, 5000)
	here := cl.mustTrainer(t, 0, 2)
	there := cl.mustTrainer(t, 1, 2)
	end := func(n *Node, tr *trainer) bool {
		left := make(chan bool, 1)
		go func() { left <- n.LameDuck(t.Context()) }()
		if _, err := tr.Call(door.KindStatus, nil); err != nil {
			t.Error(err)
		}
		if err := tr.close(); err != nil {
			t.Fatal(err)
		}
		return <-left
	}
	if !end(cl.nodes[1], there) {
		t.Error("the rank whose trainer has left did not report that")
	}
	if err := cl.nodes[1].Abandon(); err != nil { // it ends before the other is asked to
		t.Fatal(err)
	}
	if !end(cl.nodes[0], here) {
		t.Error("a rank that left of its own accord was taken for dead")
	}
}

// TestLameDuckOfADeadPeer checks that a rank leaves its trainers when another rank is silent, and
// only then.
func TestLameDuckOfADeadPeer(t *testing.T) {
	cl := newCluster(t, 2, 240, 5000, func(c *Config) {
		if c.Transport.Rank() == 1 {
			c.Transport = muted{c.Transport}
		}
	})
	tr := cl.mustTrainer(t, 0, 1)
	if cl.nodes[0].LameDuck(t.Context()) {
		t.Error("LameDuck reports that the trainer has left")
	}
	if err := tr.close(); err != nil {
		t.Fatal(err)
	}
	if !cl.nodes[0].LameDuck(t.Context()) {
		t.Error("without trainers there is nothing to give up")
	}
}

// TestLameDuckSavesImportance checks what becomes of the state file when a trainer stays for too
// long.
func TestLameDuckSavesImportance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	cl := newCluster(t, 1, 240, 5000, func(c *Config) { c.StatePath = path })
	tr := cl.plan(t, 0)
	n := cl.nodes[0]
	n.SaveImportance(t.Context()) // and what the plan has saved
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ids, _, _, err := tr.get(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	report := u32s(0, 0, 0, uint32(len(ids)))
	for range ids {
		report = append(report, u32s(0x3f000000)...)
	}
	if err := tr.Send(door.KindReport, report); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Call(door.KindStatus, nil); err != nil { // the report was accepted
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n.LameDuck(over) {
		t.Error("LameDuck reports that the trainer has left")
	}
	n.SaveImportance(t.Context())
	after, err := os.ReadFile(path)
	if err != nil || bytes.Equal(before, after) {
		t.Errorf("the report is not in the state file (%v)", err)
	}
	if err := tr.close(); err != nil {
		t.Fatal(err)
	}
	cl.close()
}
