package mpicache

import (
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

// stranger connects to a door as a process of its own.
func stranger(t *testing.T, dir string, trainer, world uint32) *door.Client {
	t.Helper()
	c, err := dial(dir, hello(trainer, world, 5, 5, 5))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the door may have closed it
	return c
}

func openSpec(c *door.Client, spec protocol.Spec) error {
	text, err := json.Marshal(spec)
	if err == nil {
		_, err = c.Call(door.KindOpen, text)
	}
	return err
}

// refused checks that err is a refusal with want in it.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	var no door.Error
	if !errors.As(err, &no) || !strings.Contains(no.Sentence, want) {
		t.Errorf("the door returned %v, want %q", err, want)
	}
}

var agreed = protocol.Spec{Data: "train", Sampler: "pads", Seed: 1, BatchSize: 6, World: 2}

// TestNewcomersAreRefusedAlone connects a newcomer in mid-training to each rank of two, with
// another value of each field of the spec, and with none. It gets one error, and the training gets
// the stream that it gets without the newcomer.
func TestNewcomersAreRefusedAlone(t *testing.T) {
	t.Parallel() // it waits
	const epochs, samples = 3, 120
	undisturbed := newCluster(t, 2, samples, 3000)
	want := undisturbed.train(2, 6, epochs, "pads")
	undisturbed.close()
	for name, n := range map[string]struct {
		edit func(*protocol.Spec)
		want string
	}{
		"sampler": {
			func(s *protocol.Spec) { s.Sampler = "torch" },
			"is being trained on with sampler \"pads\", but trainer 0 requests \"torch\"",
		},
		"seed": {
			func(s *protocol.Spec) { s.Seed = 2 },
			"is being trained on with seed 1, but trainer 0 requests 2",
		},
		"batch_size": {
			func(s *protocol.Spec) { s.BatchSize = 3 },
			"is being trained on with batch_size 6, but trainer 0 requests 3",
		},
		"drop_last": {
			func(s *protocol.Spec) { s.DropLast = true },
			"is being trained on with drop_last false, but trainer 0 requests true",
		},
		"sampler_drop_last": {
			func(s *protocol.Spec) { s.Sampler, s.SamplerDropLast = "torch", true },
			"is being trained on with sampler \"pads\"",
		},
		"assign": {
			func(s *protocol.Spec) { s.Assign = "sampler" },
			"is being trained on with assign \"\", but trainer 0 requests \"sampler\"",
		},
		"world_size": {
			func(s *protocol.Spec) { s.World = 3 },
			"is being trained on with world_size 2, but trainer 0 requests 3",
		},
		"identity": {
			func(s *protocol.Spec) { s.Identity = "another" }, "is not the one that trainer 0 trains on",
		},
		"first_chunk": {func(s *protocol.Spec) { s.FirstChunk = 2 }, "only the sampler chunks has some"},
		"data":        {func(s *protocol.Spec) { s.Data = "val" }, "this cache has no data set \"val\""},
		"nothing":     {func(*protocol.Spec) {}, "trainer 0 is process"},
		"trainer":     {func(s *protocol.Spec) { s.Trainer = 1 }, "trainer 1 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			cl := newCluster(t, 2, samples, 3000, patient)
			cl.between = func(epoch, b int) {
				if b != 0 && b != 4 && b != 9 {
					return
				}
				for _, dir := range cl.dirs {
					spec := agreed
					n.edit(&spec)
					c := stranger(t, dir, uint32(spec.Trainer), uint32(spec.World))
					want := n.want
					if dir != cl.dirs[0] && name == "nothing" {
						want = "trainer 0 opened data set train on rank 0 and on rank 1"
					}
					refused(t, openSpec(c, spec), want)
					_, err := c.Call(door.KindGet, tally{}.Append(u32s(0, 1, 4, 0)))
					refused(t, err, "has not opened")
				}
			}
			got := cl.train(2, 6, epochs, "pads")
			cl.close()
			if !slices.Equal(got, want) {
				t.Error("the stream of the training changed")
			}
			cl.checkRecords(epochs, samples)
		})
	}
}

// TestNewcomerAfterARestart makes another training the first to connect to a rank that was
// restarted under a training: each gets one sentence, and neither gets a stream of the other.
func TestNewcomerAfterARestart(t *testing.T) {
	first := newCluster(t, 1, 120, 3000)
	_ = first.plan(t, 0).close()
	first.kill()
	again := newClusterIn(t, func() string { return first.dirs[0] }, 1, 120, 3000)
	defer again.close()
	spec := agreed
	spec.World, spec.Seed = 1, 2
	if err := openSpec(stranger(t, again.dirs[0], 0, 1), spec); err != nil {
		t.Fatal(err)
	}
	tr := again.mustTrainer(t, 0, 1)
	defer tr.close()
	refused(t, tr.open("pads", 6), "is being trained on with seed 2, but trainer 0 requests 1")
}

// TestTrainerStartedAgain starts a trainer again as another process; the one before is gone, but
// workers of it have stayed.
func TestTrainerStartedAgain(t *testing.T) {
	cl := newCluster(t, 1, 120, 3000)
	defer cl.close()
	old := cl.plan(t, 1)
	spec := agreed
	spec.World = 1
	next := stranger(t, cl.dirs[0], 0, 1)
	refused(t, openSpec(next, spec), "trainer 0 is process")
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	cl.nodes[0].replace(gone)
	if err := openSpec(next, spec); err != nil {
		t.Fatal(err)
	}
	if _, err := next.Call(door.KindPlan, u32s(0, 0, 0)); err != nil {
		t.Error(err)
	}
	if _, err := old.Call(door.KindStatus, nil); err == nil {
		t.Error("what is left of the process before is still connected")
	}
	refused(t, openSpec(cl.connect(0, 1, 0), spec), "trainer 0 is process")
}

// TestOneProcessOfAFamilyActs checks that a child of a trainer reads batches, and can do nothing
// that changes the training.
func TestOneProcessOfAFamilyActs(t *testing.T) {
	cl := newCluster(t, 1, 120, 3000)
	defer cl.close()
	defer cl.plan(t, 1).close()
	child, err := dial(cl.dirs[0], hello(0, 1, 1, 1, thisFamily))
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	spec := agreed
	spec.World = 1
	if err := openSpec(child, spec); err != nil {
		t.Fatal(err)
	}
	if _, err := child.Call(door.KindGet, tally{}.Append(u32s(0, 1, 0, 0))); err != nil {
		t.Errorf("a child gets no batch: %v", err)
	}
	for kind, payload := range map[door.Kind][]byte{
		door.KindPlan: u32s(0, 2, 0), door.KindSave: u32s(0, 1, 1),
	} {
		_, err := child.Call(kind, payload)
		refused(t, err, "it may read batches, and no more")
	}
	if err := child.Send(door.KindReport, append(u32s(0, 1, 0, 6), make([]byte, 24)...)); err != nil {
		t.Fatal(err)
	}
	_, err = child.Receive()
	refused(t, err, "it may read batches, and no more")
	cl.nodes[0].coordinating(func(c *protocol.Coordinator) {
		if got := c.Ledger().Final(1); got != 0 {
			t.Errorf("%d batches were reported by a child", got)
		}
	})
}

// TestTrainersGoElsewhereTogether checks that trainers go to an epoch that is neither open nor next
// when all have requested it.
func TestTrainersGoElsewhereTogether(t *testing.T) {
	for _, sampler := range []string{"torch", "pads"} {
		cl := newCluster(t, 2, 120, 3000)
		both := make([]*trainer, 2)
		for r := range both {
			tr := cl.mustOpen(t, r, 2, sampler, 6)
			defer tr.close()
			both[r] = tr
		}
		for _, epoch := range []int{0, 7, 8, 2} {
			done := make(chan error, 2)
			for _, tr := range both {
				go func() {
					_, err := tr.plan(epoch)
					done <- err
				}()
			}
			for range both {
				if err := <-done; err != nil {
					t.Errorf("%s, epoch %d: %v", sampler, epoch, err)
				}
			}
		}
		cl.close()
	}
}

// plan makes trainer 0 of 1 request the plan of an epoch.
func (c *cluster) plan(t *testing.T, epoch int) *trainer {
	t.Helper()
	tr, err := c.trainer(0, 1)
	if err == nil {
		err = tr.open("pads", 6)
	}
	if err == nil {
		_, err = tr.plan(epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// kill ends the nodes as a signal does.
func (c *cluster) kill() {
	for _, n := range c.nodes {
		if err := n.Abandon(); err != nil {
			c.t.Error(err)
		}
		n.ticking.Wait()
		for _, s := range n.rank.All() {
			s.AwaitStates()
		}
	}
}

// shutStorage is storage that returns nothing before open is closed.
type shutStorage struct {
	Storage
	open chan struct{}
}

func (g shutStorage) Fetch(id draw.SampleID, into []byte, need uint64, done func(error)) {
	go func() {
		<-g.open
		g.Storage.Fetch(id, into, need, done)
	}()
}

// TestSameBatchTwice makes two connections of a trainer request the same batch, as threads with a
// sampler each do: the second gets an error at once, the first the batch.
func TestSameBatchTwice(t *testing.T) {
	open := make(chan struct{})
	cl := newCluster(t, 1, 120, 3000,
		func(cfg *Config) { cfg.Data[0].Storage = shutStorage{cfg.Data[0].Storage, open} })
	defer cl.close()
	first := cl.plan(t, 0)
	defer first.close()
	second := cl.mustOpen(t, 0, 1, "pads", 6)
	defer second.close()
	get := tally{}.Append(u32s(0, 0, 0, 0))
	if err := first.Send(door.KindGet, get); err != nil {
		t.Fatal(err)
	}
	if err := first.Send(door.KindStatus, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Receive(); err != nil { // the GET before it was accepted
		t.Fatal(err)
	}
	_, err := second.Call(door.KindGet, get)
	refused(t, err, "the same batch was requested before and is still being read")
	close(open)
	if _, err := first.Receive(); err != nil {
		t.Error(err)
	}
	if _, err := second.Call(door.KindGet, get); err != nil {
		t.Error(err)
	}
}

// missed makes a trainer request the first plan in vain, until it times out, and checks the error.
func missed(t *testing.T, cl *cluster, tr *trainer, want string) {
	t.Helper()
	n, answer := cl.nodes[0], tr.planBeside()
	for waits := false; !waits; {
		n.coordinating(func(c *protocol.Coordinator) { waits = c.Waiting() > 0 })
	}
	n.rank.Sets[0].Tick(time.Now().Add(time.Minute))
	var no door.Error
	if err := <-answer; !errors.As(err, &no) || no.Code != door.CodeNotReady ||
		no.Sentence != want {
		t.Errorf("the door returned %v, want %q", err, want)
	}
}

// TestTrainersOfWhichOnlyWorkersComeAreNamed makes a trainer wait for a plan while only the workers
// of the other one have opened the data set, so that its checkpoint is unknown.
func TestTrainersOfWhichOnlyWorkersComeAreNamed(t *testing.T) {
	cl := newCluster(t, 1, 120, 3000)
	defer cl.close()
	both := make([]*trainer, 2)
	for r := range both {
		tr := cl.mustTrainer(t, r, 2)
		defer tr.close()
		both[r] = tr
	}
	spec := agreed
	spec.Trainer = 1
	if err := errors.Join(both[0].open("pads", 6), openSpec(both[1].Client, spec)); err != nil {
		t.Fatal(err)
	}
	missed(t, cl, both[0], "of 2 trainers (WORLD_SIZE) 1 have not come themselves, only their "+
		"DataLoader's workers have: RANK 1")
	if err := both[1].open("pads", 6); err != nil {
		t.Fatal(err)
	}
	if _, err := both[0].plan(0); err != nil {
		t.Error(err)
	}
}

// TestMissingTrainersAreNamed makes trainers wait for a plan while others are missing. The reply
// names the missing ones; once all have connected, the next request gets the plan.
func TestMissingTrainersAreNamed(t *testing.T) {
	cl := newCluster(t, 1, 120, 3000)
	defer cl.close()
	first := cl.mustOpen(t, 0, 2, "pads", 6)
	defer first.close()
	missed(t, cl, first, "of 2 trainers (WORLD_SIZE) 1 have not come: RANK 1")
	second := cl.mustOpen(t, 1, 2, "pads", 6)
	defer second.close()
	if _, err := first.plan(0); err != nil {
		t.Error(err)
	}
}

// replace makes the rank believe that its first trainer was a process that is gone.
func (n *Node) replace(gone *exec.Cmd) {
	set := n.rank.Sets[0]
	set.Store().Locked(func() {
		set.Find("").Seats()[0].PID = int32(gone.ProcessState.Pid())
	})
}
