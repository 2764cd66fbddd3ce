package mpicache

import (
	"fmt"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/training"
)

// TestPlansBesideThatNobodyReads has a trainer ask for plans of other epochs whose replies it does
// not read: no more of them are made than may wait.
func TestPlansBesideThatNobodyReads(t *testing.T) {
	cl := newCluster(t, 1, 1<<16, 1<<16)
	defer cl.close()
	var both [2]*trainer
	for r := range both {
		both[r] = cl.mustOpen(t, r, 2, "torch", 6)
		defer both[r].close()
	}
	for _, tr := range both {
		if _, err := tr.plan(0); err != nil {
			t.Fatal(err)
		}
	}
	c := both[0]
	for epoch := range uint32(4 * training.MaxWaiting) {
		if err := c.Send(door.KindPlan, u32s(0, 9+epoch, 0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // most plans are made by then, so only their replies wait
	}
	plans := 0
	for {
		f, err := c.Receive()
		if err != nil {
			refused(t, err, fmt.Sprintf("PLAN, where %d of this connection wait", training.MaxWaiting))
			break
		}
		if plans++; f.Kind != door.KindPlan.Reply() || plans > training.MaxWaiting {
			t.Fatalf("reply %d is of kind %d", plans, f.Kind)
		}
	}
}

// TestPlanElsewhereWithoutScores checks that, if draws depend on no scores, a trainer that goes to
// another epoch alone gets its plan at once, and the batches from storage, while the others stay
// where they are.
func TestPlanElsewhereWithoutScores(t *testing.T) {
	cl := newCluster(t, 1, 120, 3000)
	defer cl.close()
	var both [2]*trainer
	for r := range both {
		tr := cl.mustOpen(t, r, 2, "torch", 6)
		defer tr.close()
		both[r] = tr
	}
	for _, tr := range both {
		if _, err := tr.plan(3); err != nil {
			t.Fatal(err)
		}
	}
	ahead, err := both[0].plan(9)
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, err = both[0].get(9, 0)
	refused(t, err, "no plan for that epoch")
	if _, _, _, err := both[1].get(3, 0); err != nil {
		t.Errorf("the other one has no batches any more: %v", err)
	}
	if _, err := both[1].plan(9); err != nil {
		t.Fatal(err)
	}
	if together, err := both[0].plan(9); err != nil || fmt.Sprint(together) != fmt.Sprint(ahead) {
		t.Errorf("the plan differs when both are there (%v)", err)
	}
	if _, _, _, err := both[0].get(9, 0); err != nil {
		t.Error(err)
	}
}
