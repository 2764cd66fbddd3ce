package mpicache

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/training"
	"rankpool/scheduler/protocol"
)

// said is a frame that breaks the rules, and the reply to it.
type said struct {
	kind    door.Kind
	payload []byte
	want    string // in the sentence; "": there is none
	stays   bool   // the connection continues
}

const no = math.MaxUint32

var hostile = map[string]struct {
	trainer uint32
	open    bool // the data set, as the others have
	said
}{
	"REPORT without OPEN": {
		no, false,
		said{door.KindReport, u32s(0, 1, 3, 0), "has not opened", false},
	},
	"REPORT read as FINISH": {
		no, false,
		said{door.KindReport, u32s(0, 1, no, 0), "has not opened", false},
	},
	"GET without OPEN": {
		0, false,
		said{door.KindGet, tally{}.Append(u32s(0, 1, 3, 0)), "has not opened", false},
	},
	"GET of no data set": {
		0, false,
		said{door.KindGet, tally{}.Append(u32s(7, 1, 3, 0)), "data set number 7", false},
	},
	"PLAN without OPEN": {
		1, false,
		said{door.KindPlan, u32s(0, 2, 0), "has not opened", false},
	},
	"SAVE without OPEN": {
		no, false,
		said{door.KindSave, u32s(0, 2, 0), "has not opened", false},
	},
	"OPEN from a launcher": {no, false, said{door.KindOpen, []byte(`{"data":"train"}`), "trains nothing", false}},
	"OPEN for another":     {1, false, said{door.KindOpen, []byte(`{"data":"train","sampler":"pads","batch_size":6,"trainer":0,"world":2}`), "trainer 1 of 2 opens for trainer 0 of 2", true}},
	"OPEN of no sampler":   {1, false, said{door.KindOpen, []byte(`{"data":"train","sampler":"magic","batch_size":6,"trainer":1,"world":2}`), "unknown sampler", true}},
	"OPEN with no batch":   {1, false, said{door.KindOpen, []byte(`{"data":"train","sampler":"pads","batch_size":-6,"trainer":1,"world":2}`), "the batch size is -6", true}},
	"OPEN of a wide world": {1, false, said{door.KindOpen, []byte(`{"data":"train","sampler":"pads","batch_size":2000000000,"trainer":1,"world":2}`), "2^31 draws", true}},
	"OPEN of no JSON":      {1, false, said{door.KindOpen, []byte(`{"data":`), "OPEN", false}},
	"OPEN that is too long": {
		1, false,
		said{door.KindOpen, make([]byte, 1<<20), "where 65536 are the most", false},
	},
	"REPORT of batch 2^32-1": {
		0, true,
		said{door.KindReport, u32s(0, 1, no, 0), "batch 4294967295, of 10", false},
	},
	"REPORT of the batch after": {
		1, true,
		said{door.KindReport, u32s(0, 1, 10, 0), "batch 10, of 10", false},
	},
	"REPORT of epoch 2^32-1": {
		0, true,
		said{door.KindReport, u32s(0, no, 0, 0), "epoch 4294967295", false},
	},
	"REPORT of an epoch to come": {
		1, true,
		said{
			door.KindReport, u32s(0, 5, 0, 0), "losses of epoch 5 from trainer 1, which is in epoch 1",
			false,
		},
	},
	"REPORT of too few losses": {
		1, true,
		said{
			door.KindReport, u32s(0, 1, 0, 0),
			"0 losses of batch 0 of epoch 1, of which trainer 1 has 6", false,
		},
	},
	"REPORT of lying length": {
		1, true,
		said{door.KindReport, u32s(0, 1, 0, no), "not a frame", false},
	},
	"REPORT that is too long": {
		1, true,
		said{door.KindReport, make([]byte, 16+4*7), "where 40 are the most", false},
	},
	"GET of a batch beyond": {
		0, true,
		said{door.KindGet, tally{}.Append(u32s(0, 1, 10, 0)), "batch 10, of 10", false},
	},
	"GET of batch 2^32-1": {
		1, true,
		said{door.KindGet, tally{}.Append(u32s(0, 1, no, 0)), "batch 4294967295", false},
	},
	"GET of epoch 2^32-1": {
		1, true,
		said{door.KindGet, tally{}.Append(u32s(0, no, 0, 0)), "epoch 4294967295", false},
	},
	"GET of an epoch to come": {
		1, true,
		said{door.KindGet, tally{}.Append(u32s(0, 1000, 0, 0)), "no plan for that epoch", true},
	},
	"GET with a lease of others": {
		0, true,
		said{door.KindGet, tally{}.Append(u32s(0, 1, 3, 1, 1)), "lease 1", false},
	},
	"GET with leases that lie": {
		0, true,
		said{door.KindGet, u32s(0, 1, 3, no), "not a frame", false},
	},
	"GET that is too long": {
		0, true,
		said{door.KindGet, make([]byte, 1<<20), "are the most", false},
	},
	"RELEASE of others' lease": {
		0, true,
		said{door.KindRelease, tally{}.Append(u32s(2, 1, 2)), "lease 1", false},
	},
	"PLAN from beyond": {
		0, true,
		said{door.KindPlan, u32s(0, 1, 11), "batch must be in [0, 10], not 11", true},
	},
	"PLAN from batch -1": {
		1, true,
		said{door.KindPlan, u32s(0, 1, no), "batch must be in [0, 10], not 4294967295", true},
	},
	"PLAN of epoch 2^32-1": {
		1, true,
		said{door.KindPlan, u32s(0, no, 0), "epoch 4294967295", false},
	},
	"PLAN of an epoch to come":     {1, true, said{door.KindPlan, u32s(0, 1000, 0), "", true}},
	"PLAN of the epoch after next": {0, true, said{door.KindPlan, u32s(0, 3, 0), "", true}},
	"SAVE of a batch beyond": {
		1, true,
		said{door.KindSave, u32s(0, 1, no), "SAVE of batch", false},
	},
	"METRIC of an epoch to come":    {1, true, said{door.KindMetric, []byte(`{"stream":0,"epoch":99,"name":"a","value":1}`), "", true}},
	"METRIC of a stream below 0":    {1, true, said{door.KindMetric, []byte(`{"stream":-1,"epoch":1,"name":"a","value":1}`), "METRIC", false}},
	"METRIC with a name of a novel": {1, true, said{door.KindMetric, []byte(`{"name":"` + strings.Repeat("n", 300) + `"}`), "a name of 300 bytes", false}},
	"METRIC that is too long": {
		1, true,
		said{door.KindMetric, make([]byte, 1<<20), "are the most", false},
	},
	"STATUS with a payload": {
		no, false,
		said{door.KindStatus, make([]byte, 1), "where 0 are the most", false},
	},
	"HELLO again": {
		0, true,
		said{door.KindHello, make([]byte, 28), "a frame of kind 1", false},
	},
	"a reply": {
		0, true,
		said{door.KindGet.Reply(), nil, "a frame of kind 104", false},
	},
	"no kind": {0, true, said{0, nil, "a frame of kind 0", false}},
	"a tally of 2^32-1 hits": {
		1, true,
		said{
			door.KindRelease, counted(1, counts{stats.HitsLocal: no, stats.TrainSeconds: 1}).Append(u32s(0)),
			"", true,
		},
	},
	"a tally of epoch 2^32-1": {
		1, true,
		said{door.KindRelease, counted(no, counts{stats.HitsLocal: 1}).Append(u32s(0)), "", true},
	},
	"a tally of an epoch to come": {
		1, true,
		said{door.KindRelease, counted(9, counts{stats.HitsLocal: 1}).Append(u32s(0)), "", true},
	},
	"a tally of large samples": {
		1, true,
		said{
			door.KindRelease,
			counted(1, counts{stats.StorageReads: 1, stats.StorageBytes: 1 << 40}).Append(u32s(0)),
			"", true,
		},
	},
	"a tally of more reads for substitutes than reads": {
		1, true,
		said{
			door.KindRelease,
			counted(1, counts{stats.StorageReads: 1, stats.SubstituteReads: 2}).Append(u32s(0)),
			"", true,
		},
	},
	"a tally of more evaluated samples than there are": {
		1, true,
		said{
			door.KindRelease, counted(1, counts{stats.Evaluated: 1 << 30}).Append(u32s(0)),
			"", true,
		},
	},
	"a tally of more reads of evaluated samples than of these": {
		1, true,
		said{
			door.KindRelease,
			counted(1, counts{stats.Evaluated: 1, stats.EvaluatedReads: 2}).Append(u32s(0)),
			"", true,
		},
	},
	"a tally of no data set": {
		1, true,
		said{
			door.KindRelease, tally{Stream: no, Counts: counts{stats.HitsLocal: 1}}.Append(u32s(0)),
			"", true,
		},
	},
	"a tally of a launcher": {
		no, false,
		said{door.KindRelease, counted(1, counts{stats.HitsLocal: 6}).Append(u32s(0)), "", true},
	},
}

// TestHostileFrames sends each of these frames to one rank of two in mid-epoch. The client receives
// the reason and is disconnected; training continues with the same stream, and no count changes.
func TestHostileFrames(t *testing.T) {
	const world, batch, epochs, samples = 2, 6, 3, 120
	undisturbed := newCluster(t, 2, samples, 3000)
	want := undisturbed.train(world, batch, epochs, "pads")
	undisturbed.close()
	for name, h := range hostile {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, 2, samples, 3000, patient)
			cl.between = func(epoch, b int) {
				if epoch == 1 && b == 4 {
					rank := int(h.trainer) % 2
					if h.trainer == no {
						rank = 0
					}
					h.check(t, filepath.Join(cl.dirs[rank], doorName), h.trainer, h.open)
				}
			}
			got := cl.train(world, batch, epochs, "pads")
			cl.close()
			if !slices.Equal(got, want) {
				t.Error("the stream of the training beside it changed")
			}
			cl.checkRecords(epochs, samples)
		})
	}
}

// check sends the frame, and checks the reply.
func (s said) check(t *testing.T, path string, trainer uint32, open bool) {
	world := uint32(2)
	if trainer == no {
		world = 0
	}
	c, err := door.Dial(path, door.NewHello(trainer, world, 77), 20*time.Second)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if open {
		spec, err := json.Marshal(
			protocol.Spec{
				Data: "train", Sampler: "pads", Seed: 1, BatchSize: 6, Trainer: int(trainer),
				World: 2,
			})
		if err == nil {
			_, err = c.Call(door.KindOpen, spec)
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
	if err := c.Send(s.kind, s.payload); err != nil {
		t.Error(err)
		return
	}
	if s.want != "" {
		_, err := c.Receive()
		var no door.Error
		if !errors.As(err, &no) || !strings.Contains(no.Sentence, s.want) {
			t.Errorf("the door returned %v, want %q", err, s.want)
		}
	}
	if _, err := c.Call(door.KindStatus, nil); (err == nil) != s.stays {
		t.Errorf("afterwards: %v", err)
	}
}

// TestHelloIsChecked checks the numbers in a first frame.
func TestHelloIsChecked(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	for _, h := range []struct {
		trainer, world uint32
		want           string
	}{
		{3, 2, "RANK must be in [0, 2), below WORLD_SIZE, not 3"},
		{0, 0, "WORLD_SIZE must be in [1, 65535], not 0"},
		{no - 1, no, "WORLD_SIZE must be in [1, 65535], not 4294967295"},
	} {
		c, err := dial(cl.dirs[0], door.NewHello(h.trainer, h.world, 0))
		if err == nil || !strings.Contains(err.Error(), h.want) {
			t.Errorf("trainer %d of %d: %v, want %q", h.trainer, h.world, err, h.want)
		}
		if err == nil {
			_ = c.Close()
		}
	}
	for name, raw := range map[string][]byte{
		"another frame": door.AppendFrame(nil, door.KindStatus, 1, nil),
		"a long one":    door.AppendFrame(nil, door.KindHello, 1, make([]byte, 1<<20)),
		"a short one":   door.AppendFrame(nil, door.KindHello, 1, []byte("rankpool")),
	} {
		if got := string(talk(t, cl, raw)); !strings.Contains(got, door.ErrFrame.Error()) {
			t.Errorf("%s: the door replied %q", name, got)
		}
	}
}

// TestPlanFromTheEnd resumes at an epoch's end, also if the epoch has fewer batches than it could
// have, since a sampler may draw fewer samples. The last batch is a small one.
func TestPlanFromTheEnd(t *testing.T) {
	for _, sampler := range []string{"pads", "subset", "torch"} {
		for _, from := range []uint32{0, 1, 19, 20} {
			t.Run(fmt.Sprint(sampler, from), func(t *testing.T) {
				cl := newCluster(t, 1, 235, 5000)
				defer cl.close()
				tr := cl.mustOpen(t, 0, 1, sampler, 12)
				defer tr.close()
				if _, err := tr.Call(door.KindPlan, u32s(0, 3, from)); err != nil {
					t.Fatal(err)
				}
				if _, err := tr.epoch(4, newBarrier(1)); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestReportsBeforeAPlan makes a trainer resend all its reports to a restarted rank, three times,
// as after a cut connection; each batch counts once. Reports of more epochs than it can have are
// refused.
func TestReportsBeforeAPlan(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	const batches = 24 / 4
	for range 3 {
		tr := cl.mustOpen(t, 0, 1, "pads", 4)
		defer tr.close()
		for b := range training.MaxHeldEpochs * batches {
			if err := tr.Send(door.KindReport,
				u32s(0, uint32(5+b/batches), uint32(b%batches), 4, 0, 0, 0, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tr.Call(door.KindStatus, nil); err != nil {
			t.Fatal(err)
		}
	}
	tr := cl.mustOpen(t, 0, 1, "pads", 4)
	defer tr.close()
	if err := tr.Send(door.KindReport, u32s(0, 5+training.MaxHeldEpochs, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Receive(); err == nil ||
		!strings.Contains(err.Error(), "losses of 18 batches, before there is a plan") {
		t.Errorf("the door returned %v", err)
	}
}
