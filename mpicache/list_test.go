package mpicache

import (
	"slices"
	"strings"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/scheduler/draw"
)

// list hands in a part of an epoch as its numbers, in pieces of n.
func (tr *trainer) list(epoch, flags uint32, n int, numbers ...uint32) (err error) {
	first := 0
	for piece := range slices.Chunk(numbers, n) {
		head := u32s(tr.stream, epoch, flags, uint32(len(numbers)), uint32(first))
		if _, err = tr.Call(door.KindList, append(head, u32s(piece...)...)); err != nil {
			return err
		}
		first += len(piece)
	}
	return nil
}

// TestListsAreChecked hands in what a rank refuses; the connection stays open.
func TestListsAreChecked(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	tr := cl.mustTrainer(t, 0, 1)
	defer tr.close()
	if err := tr.open(draw.InList, 6); err == nil || !strings.Contains(err.Error(), "has no seed") {
		t.Errorf("a batch size: %v", err)
	}
	tr.seed = -1
	if err := tr.open(draw.InList, 0); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		payload []byte
		want    string
	}{
		"an id":       {u32s(0, 3, 0, 4, 0, 1, 2, 1, 24), "epoch 3 of trainer 0: batch 0 has sample 24"},
		"no batch":    {u32s(0, 3, 0, 2, 0, 1, 0), "epoch 3 of trainer 0: batch 0 has no samples"},
		"a gap":       {u32s(0, 3, 0, 9, 3, 1), "numbers 3 to 4 of epoch 3 of trainer 0 do not follow"},
		"too many":    {u32s(0, 3, 0, 2, 0, 1, 2, 3), "numbers 0 to 3 of epoch 3 of trainer 0 do not"},
		"too long":    {u32s(0, 3, 0, 3<<20, 0), "and may have 1048576 of each: hand it in by blocks"},
		"nothing":     {u32s(0, 3, 0, 0, 0), "trainer 0 has not handed in epoch 3 here"},
		"known draws": {nil, "the sampler is pads, and not listed"},
	} {
		to := tr
		if c.payload == nil {
			to = cl.mustTrainer(t, 0, 1)
			to.job, c.payload = "other", u32s(0, 3, 0, 0, 0)
			if err := to.open("pads", 6); err != nil {
				t.Fatal(err)
			}
			le.PutUint32(c.payload, to.stream)
		}
		if _, err := to.Call(door.KindList, c.payload); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if to != tr {
			_ = to.close()
		}
	}
	if _, err := tr.Call(door.KindStatus, nil); err != nil {
		t.Error(err)
	}
}

// TestListedEpochs trains on what two trainers hand in: other lengths of batches, and ahead.
func TestListedEpochs(t *testing.T) {
	cl := newCluster(t, 2, 24, 1<<16, patient)
	defer cl.close()
	a, b := cl.mustTrainer(t, 0, 2), cl.mustTrainer(t, 1, 2)
	for _, tr := range []*trainer{a, b} {
		tr.seed = -1
		if err := tr.open(draw.InList, 0); err != nil {
			t.Fatal(err)
		}
		defer tr.close()
	}
	hand := func(tr *trainer, epoch, flags uint32, numbers ...uint32) {
		t.Helper()
		if err := tr.list(epoch, flags, 2, numbers...); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(tr *trainer, epoch int, want ...[]uint32) {
		t.Helper()
		parts, err := tr.plan(epoch)
		if err != nil || !slices.EqualFunc(parts, want, slices.Equal) {
			t.Fatalf("trainer %d, epoch %d: %v, %v", tr.rank, epoch, parts, err)
		}
	}
	get := func(tr *trainer, epoch int, want ...[]uint32) {
		t.Helper()
		for batch := range want {
			ids, lease, _, err := tr.get(epoch, batch)
			if err != nil || !slices.Equal(ids, want[batch]) {
				t.Fatalf("trainer %d, epoch %d, batch %d: %v, %v", tr.rank, epoch, batch, ids, err)
			}
			if err := tr.Send(door.KindRelease, tr.tally.Append(u32s(1, lease))); err != nil {
				t.Fatal(err)
			}
		}
	}
	hand(a, 0, 0, 2, 3, 1, 5, 6, 5, 7)
	hand(b, 0, 0, 1, 1, 23)
	plan(a, 0, []uint32{5, 6, 5}, []uint32{7})
	plan(b, 0, []uint32{23}, nil)
	get(a, 0, []uint32{5, 6, 5}, []uint32{7})
	get(b, 0, []uint32{23}, nil)
	hand(a, 1, door.ListAhead, 1, 1, 4)
	hand(b, 1, door.ListAhead, 1, 1, 9)
	if _, err := a.Call(door.KindList, u32s(0, 1, 0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	hand(b, 1, 0, 2, 1, 1, 8, 10) // not what it expected
	plan(a, 1, []uint32{4}, nil)
	plan(b, 1, []uint32{8}, []uint32{10})
	get(a, 1, []uint32{4}, nil)
	get(b, 1, []uint32{8}, []uint32{10})
	if st, err := a.Call(door.KindStatus, nil); err != nil || !strings.Contains(string(st), `"epoch":1`) {
		t.Errorf("status: %s, %v", st, err)
	}
}
