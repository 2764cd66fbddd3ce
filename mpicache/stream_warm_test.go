package mpicache

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/slab"
	"rankpool/scheduler"
)

// control connects to a rank as one that trains nothing.
func (c *cluster) control(rank int) *door.Client {
	c.t.Helper()
	client, err := dial(c.dirs[rank], door.NewHello(door.ControlTrainer, 0, 0))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// warm stages samples into the memory of a rank.
func (c *cluster) warm(rank int, ids []scheduler.SampleID) door.Warmed {
	c.t.Helper()
	w, err := c.control(rank).Warm(c.t.Context(), 0, ids)
	if err != nil {
		c.t.Fatal(err)
	}
	if n := w.Staged + w.Here + w.Elsewhere + w.NoRoom + len(w.Failures); n != len(ids) {
		c.t.Errorf("rank %d: %d samples became of %d: %+v", rank, n, len(ids), w)
	}
	return w
}

// refused checks that a rank takes no more.
func (c *cluster) refused(rank int) {
	c.t.Helper()
	var refusal door.Error
	if _, err := c.control(rank).Warm(c.t.Context(), 0, allIDs(1)); !errors.As(err, &refusal) ||
		refusal.Code != door.CodeBegun {
		c.t.Errorf("rank %d: WARM after training has begun: %v", rank, err)
	}
}

func allIDs(n int) []scheduler.SampleID {
	ids := make([]scheduler.SampleID, n)
	for i := range ids {
		ids[i] = scheduler.SampleID(i)
	}
	return ids
}

// hits is the number of hits of an epoch in the run log.
func (c *cluster) hits(epoch int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if e, is := r.(epochRecord); is && e.Epoch == epoch {
			return e.HitsLocal + e.HitsRemote
		}
	}
	c.t.Fatalf("the run log has no epoch %d", epoch)
	return 0
}

// TestWarm checks that what was staged into memory are hits of the first epoch, that each rank
// takes its own samples up to its partition, and that the stream stays as it is.
func TestWarm(t *testing.T) {
	for _, sampler := range []string{"torch", "pads"} {
		cold := newCluster(t, 2, 240, 2000)
		want := cold.train(2, 6, 2, sampler)
		cold.close()

		cl := newCluster(t, 2, 240, 2000)
		for _, n := range cl.nodes {
			n.cfg.PeerTimeout = time.Minute
		}
		path := cl.record("a")
		staged := 0
		for rank := range cl.nodes {
			w := cl.warm(rank, allIDs(240))
			own := w.Staged + w.NoRoom
			if own != 120 || w.Elsewhere != 120 || w.Staged < 10 || w.NoRoom < 10 ||
				w.Bytes > 2000 || w.Bytes < 1000 {
				t.Errorf("%s: rank %d: %+v", sampler, rank, w)
			}
			if again := cl.warm(rank, allIDs(240)); again.Here != w.Staged || again.Staged != 0 ||
				again.NoRoom != w.NoRoom {
				t.Errorf("%s: rank %d, the second time: %+v", sampler, rank, again)
			}
			staged += w.Staged
		}
		if got := cl.train(2, 6, 2, sampler); !slices.Equal(got, want) {
			t.Errorf("%s: what was staged changes the stream", sampler)
		}
		cl.refused(0)
		cl.closeRecorded()
		if hits := cl.hits(0); hits < 1 || sampler == "torch" && hits != int64(staged) {
			t.Errorf("%s: %d hits of %d samples in memory; cold %d", sampler, hits, staged,
				cold.hits(0))
		}
		for rank := range cl.nodes {
			replayed(t, path, rank)
		}
	}
}

// gated is a storage that holds the first reads until it is opened, and then gives other bytes if
// they are spoilt.
type gated struct {
	Storage
	mu     sync.Mutex
	first  int
	spoilt bool
	begun  chan struct{} // closed when the first reads have been asked for
	gate   chan struct{}
	rest   sync.WaitGroup // reads that are not held
}

func (g *gated) Fetch(id scheduler.SampleID, into []byte, need uint64, done func(error)) {
	g.mu.Lock()
	held := g.first > 0
	if g.first--; g.first == 0 {
		close(g.begun)
	}
	g.mu.Unlock()
	if !held {
		g.rest.Add(1)
		g.Storage.Fetch(id, into, need, func(err error) {
			done(err)
			g.rest.Done()
		})
		return
	}
	go func() {
		<-g.gate
		if !g.spoilt {
			g.Storage.Fetch(id, into, need, done)
			return
		}
		for i := range into {
			into[i] = 0xff
		}
		done(nil)
	}()
}

// newGated returns a cluster of one rank whose storage holds the first reads, and a WARM that waits
// for them.
func newGated(
	t *testing.T, first int, spoilt bool,
) (cl *cluster, g *gated, warmed chan door.Warmed) {
	cl = newCluster(t, 1, 60, 1<<16)
	g = &gated{
		Storage: cl.storage, first: first, spoilt: spoilt, begun: make(chan struct{}),
		gate: make(chan struct{}),
	}
	s := cl.nodes[0].streams[0]
	s.locked(func() { s.data.Storage = g })
	client, warmed := cl.control(0), make(chan door.Warmed, 1)
	go func() {
		w, err := client.Warm(t.Context(), 0, allIDs(20))
		if err != nil {
			t.Error(err)
		}
		warmed <- w
	}()
	<-g.begun
	s.locked(func() {}) // all have been asked for
	g.rest.Wait()
	return cl, g, warmed
}

// TestWarmWhileTrainingBegins checks that training waits for what is being read.
func TestWarmWhileTrainingBegins(t *testing.T) {
	cl, g, warmed := newGated(t, 20, false)
	tr := cl.mustOpen(t, 0, 1, "torch", 6)
	s := cl.nodes[0].streams[0]
	s.tick(time.Now())
	s.locked(func() {
		if s.stager != nil || len(s.warm.coming) != 20 {
			t.Errorf("training begins while %d samples are being read", len(s.warm.coming))
		}
	})
	cl.refused(0)
	close(g.gate)
	if w := <-warmed; w.Staged != 20 || len(w.Failures) > 0 {
		t.Errorf("%+v", w)
	}
	if err := tr.close(); err != nil {
		t.Error(err)
	}
	cl.train(1, 6, 1, "torch")
	cl.close()
	if hits := cl.hits(0); hits != 20 {
		t.Errorf("%d hits", hits)
	}
}

// TestWarmGivenUp checks that training begins without reads that do not end, and that what they
// write when they do is in nobody's way.
func TestWarmGivenUp(t *testing.T) {
	cl, g, warmed := newGated(t, 5, true)
	tr, err := cl.trainer(0, 1)
	if err == nil {
		err = tr.open("torch", 6)
	}
	if err = errors.Join(err, tr.close()); err != nil {
		t.Fatal(err)
	}
	cl.nodes[0].streams[0].tick(time.Now().Add(2 * warmPatience))
	cl.train(1, 6, 1, "torch")
	close(g.gate)
	w := <-warmed
	if w.Staged != 15 || len(w.Failures) != 5 ||
		!strings.Contains(w.Failures[0].Reason, "training began") {
		t.Errorf("%+v", w)
	}
	cl.close()
	if hits := cl.hits(0); hits != 15 {
		t.Errorf("%d hits", hits)
	}
	want := int64(0)
	for id := range scheduler.SampleID(60) {
		want += slab.Footprint(sampleSize(id))
	}
	if used := cl.nodes[0].arena.UsedBytes(); used != want {
		t.Errorf("%d bytes of memory are used at the end, of samples %d", used, want)
	}
}

// TestWarmFailures checks that a sample that cannot be read is told and may be tried again, that
// nonsense is refused, and that a client that goes away leaves what it had read.
func TestWarmFailures(t *testing.T) {
	cl := newCluster(t, 1, 60, 1<<16)
	cl.storage.bad[7] = true
	w := cl.warm(0, allIDs(10))
	if w.Staged != 9 || len(w.Failures) != 1 ||
		w.Failures[0] != (door.WarmFailure{Sample: 7, Reason: "sample 7 is gone"}) {
		t.Errorf("%+v", w)
	}
	cl.storage.mu.Lock()
	cl.storage.bad[7] = false
	cl.storage.mu.Unlock()
	if w := cl.warm(0, allIDs(10)); w.Staged != 1 || w.Here != 9 {
		t.Errorf("%+v", w)
	}
	for _, c := range []struct {
		stream uint32
		id     scheduler.SampleID
	}{{1, 0}, {0, 60}} {
		var refusal door.Error
		if _, err := cl.control(0).Warm(t.Context(), c.stream,
			[]scheduler.SampleID{c.id}); !errors.As(err, &refusal) ||
			refusal.Code != door.CodeRequest {
			t.Errorf("sample %d of data set %d: %v", c.id, c.stream, err)
		}
	}
	gone := door.AppendHello(nil, 0, door.NewHello(door.ControlTrainer, 0, 0))
	talk(t, cl, door.AppendFrame(gone, door.KindWarm, 1, u32s(0, 5, 20, 21, 22, 23, 24)))
	if w := cl.warm(0, []scheduler.SampleID{20, 21, 22, 23, 24}); w.Here != 5 {
		t.Errorf("%+v", w)
	}
	cl.train(1, 6, 1, "torch")
	cl.close()
	if hits := cl.hits(0); hits != 15 {
		t.Errorf("%d hits", hits)
	}
}
