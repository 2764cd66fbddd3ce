package mpicache

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/transport"
)

func sorted(ids []uint32) []uint32 { return slices.Sorted(slices.Values(ids)) }

// TestStreamIsTheSame checks the promise: the same global batches for any number of ranks and any
// memory.
func TestStreamIsTheSame(t *testing.T) {
	for _, sampler := range []string{"uniform", "pads"} {
		var first []string
		for _, c := range []struct {
			ranks, world, batch int
			capacityBytes       int64
		}{{1, 1, 12, 0}, {1, 2, 6, 1 << 20}, {2, 2, 6, 2000}, {4, 4, 3, 5000}, {3, 6, 2, 1 << 20}} {
			t.Run(fmt.Sprintf("%s/%d-ranks-%d-bytes", sampler, c.ranks, c.capacityBytes),
				func(t *testing.T) {
					cl := newCluster(t, c.ranks, 240, c.capacityBytes, patient)
					stream := cl.train(c.world, c.batch, 3, sampler)
					cl.close()
					if first == nil {
						first = stream
					}
					if !slices.Equal(stream, first) {
						t.Errorf("the stream differs from that of one rank without memory")
					}
					cl.checkRecords(3, 240)
				})
		}
	}
}

// checkRecords checks the run log's lines against each other.
func (c *cluster) checkRecords(epochs, draws int) {
	c.t.Helper()
	if len(c.records) != epochs+1 {
		c.t.Fatalf("%d lines in the run log, want %d: %+v", len(c.records), epochs+1, c.records)
	}
	for i, r := range c.records[:epochs] {
		e := r.(stats.Epoch)
		if e.Epoch != i || e.Draws() != float64(draws) || e.Sums[stats.FallbackReads] != 0 {
			c.t.Errorf("line %d: %+v", i, e)
		}
	}
	text, err := json.Marshal(c.records[epochs])
	var summary struct {
		Event         string
		Draws, Epochs int
	}
	if err = errors.Join(err, json.Unmarshal(text, &summary)); err != nil {
		c.t.Fatal(err)
	}
	if summary.Event != "summary" || summary.Draws != epochs*draws || summary.Epochs != epochs {
		c.t.Errorf("summary: %s", text)
	}
}

// TestResidentsAreNotReadAgain checks that with room for all, the second epoch reads nothing.
func TestResidentsAreNotReadAgain(t *testing.T) {
	cl := newCluster(t, 2, 240, 1<<20, patient)
	cl.train(2, 6, 3, "uniform")
	cl.close()
	for id, n := range cl.storage.reads {
		if n != 1 {
			t.Errorf("sample %d was read %d times", id, n)
		}
	}
}

// TestSilentPeer checks that trainers continue, from storage, when a rank does not answer.
func TestSilentPeer(t *testing.T) {
	t.Parallel() // it waits
	cl := newCluster(t, 3, 240, 1<<20)
	done := make(chan []string)
	go func() { done <- cl.train(3, 4, 3, "uniform") }()
	for cl.opened() < 3 { // all must agree first
		runtime.Gosched()
	}
	cl.nodes[2].cfg.Transport.(*transport.Local).Silence()
	stream := <-done
	healthy := newCluster(t, 3, 240, 1<<20)
	want := healthy.train(3, 4, 3, "uniform")
	healthy.close()
	cl.close()
	if !slices.Equal(stream, want) {
		t.Error("the stream differs when a rank is silent")
	}
}

// opened returns the number of ranks that know all trainers.
func (c *cluster) opened() int {
	n := 0
	for _, node := range c.nodes {
		if node.rank.Sets[0].Store().Opened() {
			n++
		}
	}
	return n
}

func TestUnreadableSample(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<20)
	defer cl.close()
	cl.storage.bad[7] = true
	tr := cl.mustOpen(t, 0, 1, "sequential", 8)
	defer tr.close()
	if _, err := tr.plan(0); err != nil {
		t.Fatal(err)
	}
	ids, _, sources, err := tr.get(0, 0)
	if err != nil || ids[7] != 7 || sources[7] != 5 || sources[6] == 5 {
		t.Errorf("ids %v, sources %v, %v", ids, sources, err)
	}
}

func TestTrainersThatDisagree(t *testing.T) {
	cl := newCluster(t, 2, 24, 1<<20)
	defer cl.close()
	a := cl.mustTrainer(t, 0, 2)
	defer a.close()
	b := cl.mustTrainer(t, 1, 2)
	defer b.close()
	if err := a.open("uniform", 8); err != nil {
		t.Fatal(err)
	}
	var refused door.Error
	errB := b.open("uniform", 4)
	_, errA := a.plan(0) // the disagreement reaches rank 0 sooner or later, and this waits for it
	for _, err := range []error{errA, errB} {
		if err == nil {
			continue // the other rank may not know yet
		}
		if !errors.As(err, &refused) || refused.Code != door.CodeRequest {
			t.Errorf("got %v", err)
		}
	}
	sentences := []string{
		"the trainers disagree on data set train: trainer 0 has batch_size 8, trainer 1 has 4",
		"the trainers disagree on data set train: trainer 1 has batch_size 4, trainer 0 has 8",
	}
	if errA == nil || refused.Code == 0 || !slices.Contains(sentences, refused.Sentence) {
		t.Errorf("got %v and %v", errA, errB)
	}
}

// TestRankStartsAgain checks that ranks that died in mid-epoch plan the same epochs again from what
// they left.
func TestRankStartsAgain(t *testing.T) {
	whole := newCluster(t, 1, 240, 5000)
	want := whole.train(1, 12, 3, "pads")
	whole.close()

	cl := newCluster(t, 1, 240, 5000)
	tr := cl.mustOpen(t, 0, 1, "pads", 12)
	step := newBarrier(1)
	for e := range 2 {
		if _, err := tr.epoch(e, step); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := tr.plan(2)
	if err != nil {
		t.Fatal(err)
	}
	tr.close()
	dir, training := cl.dirs[0], tr.training
	cl.close() // leaves the states in the folder, as a killed rank does

	again := newCluster(t, 1, 240, 5000)
	defer again.close()
	s := again.nodes[0].rank.Sets[0].Find("")
	again.nodes[0].rank.Dir = dir
	tr, err = again.trainer(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	tr.training = training
	if err := tr.open("pads", 12); err != nil {
		t.Fatal(err)
	}
	got, err := tr.plan(2)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, p := range got {
		text += fmt.Sprintln(sorted(p))
	}
	if fmt.Sprint(got) != fmt.Sprint(parts) || text != want[2] {
		t.Errorf("the third epoch's plan differs after the rank restarted (%d epochs open)",
			len(s.Coordinator().Open()))
	}
}
