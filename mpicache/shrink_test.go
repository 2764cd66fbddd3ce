package mpicache

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/stats"
)

// allocated returns how much memory the slab's file has.
func allocated(t *testing.T, n *Node) int64 {
	t.Helper()
	fd, err := n.slab.ReadOnlyFD()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestShrinkUnderTraining shrinks the memory of one rank while it trains: the stream stays the
// same, there are no fallback reads, and the system gets the memory.
func TestShrinkUnderTraining(t *testing.T) {
	const ranks, samples, capacity = 2, 4000, 1 << 18
	healthy := newCluster(t, ranks, samples, capacity)
	want := healthy.train(ranks, 8, 3, "uniform")
	healthy.close()

	var looks atomic.Int64 // the fourth begins when the third step is done
	var told []int64       // the slab's size, in each look
	cl := newCluster(t, ranks, samples, capacity, patient, func(c *Config) {
		if c.Transport.Rank() == 1 {
			c.GiveBack = func(slabBytes int64) (int64, time.Duration) { // 300 KiB in three steps
				told = append(told, slabBytes)
				if looks.Add(1) > 3 {
					return 0, time.Hour // a second is the most
				}
				return 100 << 10, 0
			}
		}
	})
	n := cl.nodes[1]
	var got []string
	// training is quick: it may take several passes until the watch has looked four times
	for looks.Load() <= 3 || got == nil {
		got = cl.train(ranks, 8, 3, "uniform") // the same draws each time, whatever was reported
		if !slices.Equal(got, want) {
			t.Fatal("the stream differs from that of ranks that keep their memory")
		}
	}
	n.shrinker.sweep()
	st := n.Stats()
	if most := cl.nodes[0].Stats().SlabBytes - 300<<10; st.SlabBytes > most {
		t.Errorf("the slab has %d bytes, at most %d are its", st.SlabBytes, most)
	}
	file, err := n.slab.Identity()
	if err != nil {
		t.Fatal(err)
	}
	if back := file.SizeBytes - allocated(t, n); back < 290<<10 {
		t.Errorf("the system got %d bytes", back)
	}
	if most := int64(
		float64(capacity) * float64(st.SlabBytes-n.shrinker.leastBytes) / float64(
			n.shrinker.fullBytes-n.shrinker.leastBytes)); st.ResidentBytes > most+200 {
		t.Errorf("%d bytes are residents, at most %d may be", st.ResidentBytes, most)
	}
	cl.close()
	if full := n.shrinker.fullBytes; told[0] != full || told[1] > full-100<<10 ||
		told[len(told)-1] != st.SlabBytes {
		t.Errorf("the callbacks received sizes of %d, the slab had %d bytes and has %d", told, full,
			st.SlabBytes)
	}
	for _, r := range cl.records {
		if e, ok := r.(stats.Epoch); ok && e.Sums[stats.FallbackReads] > 0 {
			t.Errorf("%v fallback reads in epoch %d", e.Sums[stats.FallbackReads], e.Epoch)
		}
	}
}

// TestShrinkKeepsTheWindow checks that a node that must release everything keeps what it needs to
// read ahead.
func TestShrinkKeepsTheWindow(t *testing.T) {
	cl := newCluster(t, 1, 240, 1<<18)
	n := cl.nodes[0]
	n.shrinker.shrink(1 << 40)
	n.shrinker.shrink(1)
	if st := n.Stats(); st.SlabBytes > n.shrinker.leastBytes || st.SlabBytes < 1<<19 {
		t.Errorf("the slab has %d bytes", st.SlabBytes)
	}
	cl.train(1, 6, 2, "uniform")
	cl.close()
}

// TestLooks checks the bounds of the time between two looks, and that the slab is swept at most
// once a second, and only after it has shrunk.
func TestLooks(t *testing.T) {
	var again time.Duration
	bytes := int64(0)
	cl := newCluster(t, 1, 240, 1<<18)
	defer cl.close()
	h := &cl.nodes[0].shrinker
	h.node.cfg.GiveBack = func(int64) (int64, time.Duration) { return bytes, again }
	now := time.Unix(1000, 0)
	for _, c := range []struct{ says, want time.Duration }{
		{0, 5 * time.Millisecond},
		{-time.Hour, 5 * time.Millisecond},
		{30 * time.Millisecond, 30 * time.Millisecond},
		{time.Minute, time.Second},
	} {
		if again = c.says; h.look(now) != c.want {
			t.Errorf("GiveBack returned %v: the next check is not %v later", c.says, c.want)
		}
	}
	if !h.swept.IsZero() {
		t.Error("a slab that never shrank was swept")
	}
	for _, c := range []struct {
		after, swept time.Duration
		bytes        int64
	}{
		{0, 0, 1},
		{900 * time.Millisecond, 0, 0},
		{time.Second, time.Second, 0},
		{1900 * time.Millisecond, time.Second, 0},
	} {
		bytes = c.bytes
		if h.look(now.Add(c.after)); !h.swept.Equal(now.Add(c.swept)) {
			t.Errorf("after %v it was swept at %v", c.after, h.swept)
		}
	}
}

// TestHalt checks that a node that watches its memory ends, even if it is asked to twice.
func TestHalt(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<18, func(c *Config) {
		c.GiveBack = func(int64) (int64, time.Duration) { return 0, time.Hour }
	})
	n := cl.nodes[0]
	n.halt()
	n.ticking.Wait()
	cl.close()
}

// TestClientsMapAllThatSamplesAreIn checks a slab that is not made of whole pages.
func TestClientsMapAllThatSamplesAreIn(t *testing.T) {
	cl := newCluster(t, 1, 10, 1<<14, func(c *Config) { c.SlabBytes = 4352 })
	defer cl.close()
	tr := cl.mustTrainer(t, 0, 1)
	defer tr.close()
	if mapped, bytes := len(tr.slab), cl.nodes[0].slab.SizeBytes(); int64(mapped) != bytes {
		t.Errorf("clients map %d bytes, and samples are put into %d", mapped, bytes)
	}
}
