package mpicache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/transport"
)

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
	cl := newCluster(t, 2, 240, 5000)
	cl.signs[1].(*transport.Local).Silence()
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

// TestLostRank silences one of three ranks: the others report it, and a trainer that waits for a
// plan gets an error, then and not before.
func TestLostRank(t *testing.T) {
	const bound = 200 * time.Millisecond
	missed := make(chan string, 100)
	group := transport.NewLocal(3)
	c := newCluster(t, 3, 300, 1<<20, func(cfg *Config) {
		cfg.Watch = watchOn(group[cfg.Transport.Rank()], bound, func(rank int) {
			missed <- fmt.Sprint(cfg.Transport.Rank(), " misses ", rank)
		})
		cfg.Watch.Start()
	})
	// the other two do not open the data set, so the trainer waits for its plan
	tr, err := c.trainer(0, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.open("pads", 8); err != nil {
		t.Fatal(err)
	}
	refused := tr.planBeside()
	select {
	case err := <-refused:
		t.Errorf("the plan was not waited for: %v", err)
	default:
	}
	group[2].(*transport.Local).Silence()
	due := []string{"0 misses 2", "1 misses 2", "2 misses 0", "2 misses 1"}
	for len(due) > 0 { // on a busy machine one of these may miss the other for a moment, too
		who := <-missed
		due = slices.DeleteFunc(due, func(miss string) bool { return miss == who })
	}
	var says door.Error
	if err := <-refused; !errors.As(err, &says) || says.Code != door.CodeNotReady ||
		!strings.Contains(says.Sentence, "rank 2 has not answered for 200ms") {
		t.Errorf("the trainer received %v", err)
	}
	if err := tr.close(); err != nil {
		t.Error(err)
	}
	for _, n := range c.nodes {
		n.cfg.Watch.Stop()
		_ = group[n.cfg.Transport.Rank()].Close()
		_ = n.Abandon() // Close would wait for the silent one
	}
}
