package mpicache

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/fields"
	"rankpool/mpicache/stats"
	"rankpool/scheduler"
)

// openBeside opens a stream beside the training and returns its number.
func openBeside(c *door.Client, spec scheduler.Spec) (uint32, error) {
	spec.Beside = true
	text, err := json.Marshal(spec)
	if err != nil {
		return 0, err
	}
	reply, err := c.Call(door.KindOpen, text)
	if err != nil {
		return 0, err
	}
	var opened struct{ Stream uint32 }
	return opened.Stream, json.Unmarshal(reply, &opened)
}

// TestBeside makes the processes of a training evaluate on the same data in mid-epoch, in order,
// each its part or all of it. They get their own ids, and the training's stream and counts are the
// same as without.
func TestBeside(t *testing.T) {
	const epochs, samples = 3, 115
	undisturbed := newCluster(t, 2, samples, 3000)
	want := undisturbed.train(2, 6, epochs, "pads")
	undisturbed.close()
	cl := newCluster(t, 2, samples, 3000, patient)
	cl.between = func(epoch, b int) {
		if b%3 != 0 {
			return
		}
		for world := 1; world <= 2; world++ {
			seen := make([]uint32, 0, samples)
			for rank := range world {
				seen = append(seen, evaluate(t, cl.dirs[rank], rank, world, epoch+b)...)
			}
			slices.Sort(seen)
			if len(seen) != samples || seen[0] != 0 || !slices.Equal(slices.Compact(seen), seen) {
				t.Errorf("%d of %d samples were evaluated", len(seen), samples)
			}
		}
	}
	got := cl.train(2, 6, epochs, "pads")
	cl.close()
	if !slices.Equal(got, want) {
		t.Error("the stream of the training changed")
	}
	cl.checkRecords(epochs, 120) // of whole batches
}

// evaluate does all that a sampler beside a training does, and returns its ids.
func evaluate(t *testing.T, dir string, rank, world, epoch int) []uint32 {
	c, err := dial(dir, door.NewHello(uint32(rank), uint32(world), 9))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer c.Close()
	number, err := openBeside(c,
		scheduler.Spec{Data: "train", Sampler: "sequential", BatchSize: 7, Trainer: rank, World: world})
	if err != nil {
		t.Error(err)
		return nil
	}
	reply, err := c.Call(door.KindPlan, u32s(number, uint32(epoch), 0))
	if err != nil {
		t.Error(err)
		return nil
	}
	p := fields.Reader{Rest: reply}
	p.U32()
	batches := p.U32()
	p.U32()
	p.U32()
	n := uint32(0)
	for _, count := range fields.U32s[uint32](&p, nil, batches) {
		n += count
	}
	ids := fields.U32s[uint32](&p, nil, n)
	for i, id := range ids {
		if lot := 7 * world; int(id)/lot != i/7 {
			t.Errorf("sample %d is at %d", id, i)
		}
	}
	told := tally{Stream: number, Epoch: 1, Counts: counts{stats.HitsLocal: 7}}
	_, err = c.Call(door.KindGet, told.Append(u32s(number, uint32(epoch), 0, 0)))
	refused(t, err, "read from storage")
	if err := c.Send(door.KindReport, u32s(number, uint32(epoch), 0, 1, 0)); err != nil {
		t.Error(err)
	}
	if err := c.Send(door.KindMetric, fmt.Appendf(nil, `{"stream":%d,"epoch":%d,"name":"accuracy","value":1}`, number, epoch)); err != nil {
		t.Error(err)
	}
	if reply, err := c.Call(door.KindSave, u32s(number, uint32(epoch), 1)); err != nil || string(reply) != `{"saved":"","state":""}` {
		t.Errorf("SAVE: %s, %v", reply, err)
	}
	return ids
}

// TestBesideDrawsWithoutScores checks what is refused beside a training, and that a stream opened
// again has the same number.
func TestBesideDrawsWithoutScores(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	c := cl.connect(0, 1, 0)
	defer c.Close()
	spec := scheduler.Spec{Data: "train", Sampler: "pads", BatchSize: 4, World: 1}
	_, err := openBeside(c, spec)
	refused(t, err, "pads draws by scores, and only the first one has them")
	numbers := map[uint32]bool{}
	for seed := range int64(maxBesides) {
		spec.Sampler, spec.Seed = "torch", seed
		a, err := openBeside(c, spec)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := openBeside(c, spec); err != nil || b != a || a < besideStreams {
			t.Errorf("stream %d, then %d (%v)", a, b, err)
		}
		numbers[a] = true
	}
	if len(numbers) != maxBesides {
		t.Errorf("%d numbers for %d streams", len(numbers), maxBesides)
	}
	spec.Seed = -1
	_, err = openBeside(c, spec)
	refused(t, err, "one more is too many")
}

// TestPlansBesideThatNobodyReads has a client ask for plans whose replies it does not read: no more
// of them are made than may wait.
func TestPlansBesideThatNobodyReads(t *testing.T) {
	cl := newCluster(t, 1, 1<<16, 1<<16)
	defer cl.close()
	c := cl.connect(0, 1, 0)
	defer c.Close()
	number, err := openBeside(c,
		scheduler.Spec{Data: "train", Sampler: "sequential", BatchSize: 4, World: 1})
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range uint32(4 * maxWaiting) {
		if err := c.Send(door.KindPlan, u32s(number, epoch, 0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // most plans are made by then, so only their replies wait
	}
	plans := 0
	for {
		f, err := c.Receive()
		if err != nil {
			refused(t, err, fmt.Sprintf("PLAN, where %d of this connection wait", maxWaiting))
			break
		}
		if plans++; f.Kind != door.KindPlan.Reply() || plans > maxWaiting {
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
