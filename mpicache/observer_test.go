package mpicache

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/training"
	"rankpool/mpicache/transport"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// TestStats checks the ranks' statistics against the epochs of the run log, and that rank 0
// receives all of them.
func TestStats(t *testing.T) {
	const ranks, samples = 3, 240
	cl := newCluster(t, ranks, samples, 1<<14, func(c *Config) {
		c.NodeEvery = time.Hour // only the last lines
		c.Observe = func(stallSeconds float64, trainers int) stats.Machine {
			return stats.Machine{StorageReads: int64(trainers), MemoryLimit: "none"}
		}
	})
	cl.train(ranks, 4, 3, "pads")
	for r, n := range cl.nodes {
		if st := n.Stats(); st.Rank != r || st.ResidentBytes <= 0 || st.ResidentBytes > 1<<14 ||
			st.Residents == 0 || st.UsedBytes < st.ResidentBytes {
			t.Errorf("rank %d: %+v", r, st)
		}
	}
	cl.close()
	var nodes []stats.Reading
	var sum stats.Sums
	var epochs, importance int
	for _, line := range cl.records {
		switch line := line.(type) {
		case stats.Reading:
			nodes = append(nodes, line)
			sum.Add(line.Sums)
		case stats.Epoch:
			epochs++
			sum = sum.Minus(line.Sums)
		case training.ImportanceRecord:
			importance++
			total := int64(0)
			for _, n := range line.Counts {
				total += n
			}
			if total != samples || len(line.Edges) != len(line.Counts)+1 ||
				line.Epoch != importance-1 || line.EffectiveSamples < samples/4 ||
				line.EffectiveSamples > samples+1e-3 {
				t.Errorf("importance: %+v", line)
			}
		}
	}
	if len(nodes) != ranks || epochs != 3 || importance != 3 {
		t.Fatalf("%d lines of ranks, %d of epochs, %d of importance: %+v", len(nodes), epochs,
			importance, cl.records)
	}
	if sum[stats.HitsLocal] != 0 || sum[stats.HitsRemote] != 0 || sum[stats.StorageReads] != 0 ||
		sum[stats.FallbackReads] != 0 {
		t.Errorf("the ranks counted %+v more than the epochs", sum)
	}
	peers := 0.0
	for r, st := range nodes {
		if st.Rank != r || st.Data == "train" != (st.Epoch >= 0) || st.Epoch > 2 ||
			st.Machine.MemoryLimit != "none" {
			t.Errorf("line of rank %d: %+v", r, st)
		}
		peers += st.Sums[stats.PeerBytes]
	}
	if peers == 0 {
		t.Error("no bytes came from peers")
	}
}

// TestSilentRanksAreLeftOut checks that rank 0 lists only ranks that have reported recently.
func TestSilentRanksAreLeftOut(t *testing.T) {
	cl := newCluster(t, 2, 10, 1<<14)
	defer cl.close()
	o, now := &cl.nodes[0].observer, time.Now().Add(time.Hour)
	o.take(0, stats.Reading{Rank: 0}, now)
	o.take(1, stats.Reading{Rank: 1}, now.Add(-silentRank+time.Millisecond))
	if got := o.ranks(now); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if got := o.ranks(now.Add(time.Millisecond)); len(got) != 1 || got[0].Rank != 0 {
		t.Errorf("%+v", got)
	}
}

// TestStatsBeginWithTheRank checks that a rank leaves out what a trainer counted with the rank
// before it, except what the trainer read itself while there was no rank.
func TestStatsBeginWithTheRank(t *testing.T) {
	n := agreedRank(t)
	const epoch = 7
	from := training.Teller{Worker: 99}
	for _, c := range []struct {
		hits, stall int64
		asked       bool
		wantHits    float64
		wantStall   float64
	}{{5, 1e6, false, 0, 0}, {9, 3e6, true, 4, 2}} {
		n.rank.Sets[0].Find("").Tally(from, counted(epoch, counts{
			stats.HitsLocal: c.hits, stats.StorageReads: 2, stats.FallbackReads: 3,
			stats.StallSeconds: c.stall,
		}), c.asked)
		if st := n.Stats().Sums; st[stats.HitsLocal] != c.wantHits || st[stats.StorageReads] != 0 ||
			st[stats.FallbackReads] != 3 || st[stats.StallSeconds] != c.wantStall {
			t.Errorf("%+v", st)
		}
	}
	if c := n.rank.Sets[0].Find("").Count(epoch); c.Sums[stats.HitsLocal] != 9 ||
		c.Sums[stats.StorageReads] != 2 {
		t.Errorf("the epoch's count is %+v", c)
	}
	for _, c := range []struct{ stall, unmeasured int64 }{{0, 1}, {4e6, 0}} {
		n.rank.Sets[0].Find("").Tally(from, counted(epoch, counts{
			stats.HitsLocal: 9, stats.StorageReads: 2, stats.FallbackReads: 3,
			stats.StallSeconds: c.stall, stats.Unmeasured: c.unmeasured,
		}), true)
		stall := n.Stats().Sums[stats.StallSeconds]
		known := !math.IsNaN(stall)
		if sum := n.rank.Sets[0].Find("").Count(epoch); known != (c.stall > 0) ||
			known == math.IsNaN(sum.Sums[stats.StallSeconds]) {
			t.Errorf("with %+v: %v, in the epoch %v", c, stall, sum.Sums[stats.StallSeconds])
		}
	}
}

// agreedRank returns a rank that believes that its trainer, which never connects, has opened the
// data set.
func agreedRank(t *testing.T) *Node {
	t.Helper()
	cl := newCluster(t, 1, 10, 1<<14)
	t.Cleanup(cl.close)
	set := cl.nodes[0].rank.Sets[0]
	set.Store().Locked(func() {
		set.Find("").Coordinate(protocol.Opened{Spec: protocol.Spec{BatchSize: 2, World: 1}})
	})
	return cl.nodes[0]
}

// connect makes a connection to rank 0's door; the test closes it.
func (c *cluster) connect(trainer, world uint32, worker uint64) *door.Client {
	c.t.Helper()
	client, err := dial(c.dirs[0], door.NewHello(trainer, world, worker))
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// tell sends the tally of a process that has received nothing on this connection, and returns when
// it has been handled.
func (c *cluster) tell(client *door.Client, t tally) {
	c.t.Helper()
	if err := client.Send(door.KindRelease, t.Append(u32s(0))); err != nil {
		c.t.Fatal(err)
	}
	if _, err := client.Call(door.KindStatus, nil); err != nil {
		c.t.Fatal(err)
	}
}

// TestTrainersAreCountedOnce checks that a training process counts once, with however many
// connections, and a launcher not at all.
func TestTrainersAreCountedOnce(t *testing.T) {
	cl := newCluster(t, 1, 10, 1<<14)
	n := cl.nodes[0]
	silent, err := net.Dial("unix", filepath.Join(cl.dirs[0], doorName))
	if err != nil {
		t.Fatal(err)
	}
	clients := []*door.Client{cl.connect(door.ControlTrainer, 0, 0)} // accepted after the silent one
	if n.Training() {
		t.Error("a launcher, or a client before its HELLO, counts as a trainer")
	}
	if err := silent.Close(); err != nil {
		t.Error(err)
	}
	for i, want := range []int{1, 1, 1, 2, 2} {
		clients = append(clients, cl.connect(uint32(i/3), 2, uint64(i)))
		if got := n.clients.Trainers(); got != want || n.Stats().Trainers != want || !n.Training() {
			t.Errorf("after %d connections: %d trainers, want %d", i+1, got, want)
		}
	}
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	cl.close()
	if n.Training() {
		t.Error("trainers that have left are counted")
	}
}

// TestFirstTallyCounts checks that a training process's first tally of an epoch counts for the
// rank, although its workers were given the batches. Only the first tally on a connection does not:
// it was counted by the previous rank.
func TestFirstTallyCounts(t *testing.T) {
	cl := newCluster(t, 1, 10, 1<<14)
	defer cl.close()
	n := cl.nodes[0]
	tr := cl.mustOpen(t, 0, 1, "sequential", 2)
	defer tr.close()
	cl.tell(tr.Client, counted(8, counts{
		stats.HitsLocal: 9, stats.StallSeconds: 5e6, stats.TrainSeconds: 9e6,
	}))
	for epoch := range 2 {
		if _, err := tr.plan(epoch); err != nil {
			t.Fatal(err)
		}
		cl.tell(tr.Client, counted(uint32(epoch), counts{
			stats.HitsLocal: 10, stats.StallSeconds: 1e6, stats.TrainSeconds: 9e6,
		}))
		if st, times := n.Stats().Sums, epoch+1; st[stats.HitsLocal] != float64(10*times) ||
			st[stats.StallSeconds] != float64(times) {
			t.Errorf("after %d epochs: %+v", times, st)
		}
	}
	worker := &trainer{Client: cl.connect(0, 1, 5), world: 1, slab: tr.slab}
	defer func() { _ = worker.Close() }() // its replies do not matter
	if err := worker.open("sequential", 2); err != nil {
		t.Fatal(err)
	}
	worker.tally.Epoch = 1
	if _, _, _, err := worker.get(1, 0); err != nil {
		t.Fatal(err)
	}
	cl.tell(worker.Client, worker.tally)
	if st := n.Stats(); st.Draws() != 22 {
		t.Errorf("after a worker's batch of 2: %+v", st)
	}
}

// TestSumsDoNotFall checks that sums of seconds stay as they are while nothing happens: added up as
// floats, in the order of a map, they would differ by rounding.
func TestSumsDoNotFall(t *testing.T) {
	n := agreedRank(t)
	const epochs = training.MaxToldEpochs
	for e := range int64(epochs) {
		us := 123457 + e*e*e*7654321
		n.rank.Sets[0].Find("").Tally(training.Teller{},
			counted(uint32(e), counts{stats.StallSeconds: us, stats.TrainSeconds: us}), true)
	}
	before := n.Stats().Sums
	for range 100 {
		if now := n.Stats().Sums; now != before {
			t.Fatalf("%.17g after %.17g", now, before)
		}
	}
	// 14400: the sum of the cubes
	if want := float64(epochs*123457+14400*7654321) / 1e6; before[stats.StallSeconds] != want {
		t.Errorf("%.17g s, want %.17g", before[stats.StallSeconds], want)
	}
}

// TestSlowestTrainer checks the batch that a rank is at: that of its slowest trainer, to the end of
// an epoch whose last batch is small.
func TestSlowestTrainer(t *testing.T) {
	for _, tt := range []struct {
		samples, world, size int
		draws                [][2]int64 // of each trainer, by its process and by a worker
		batch                int
	}{
		{100, 1, 24, [][2]int64{{0, 0}}, 0},
		{100, 1, 24, [][2]int64{{24, 24}}, 2},
		{100, 1, 24, [][2]int64{{96, 0}}, 4},
		{100, 1, 24, [][2]int64{{96, 4}}, 5},
		{40, 2, 4, [][2]int64{{20, 0}, {8, 0}}, 2},
		{40, 2, 4, [][2]int64{{8, 0}, {20, 0}}, 2},
		{40, 2, 4, [][2]int64{{20, 0}, {0, 0}}, 0},
		{40, 2, 4, [][2]int64{{0, 20}, {20, 0}}, 5},
		{17, 2, 4, [][2]int64{{9, 0}, {8, 0}}, 3}, // the last batch has nothing for the second
		{17, 2, 4, [][2]int64{{9, 0}, {4, 0}}, 1},
	} {
		t.Run(fmt.Sprint(tt.samples, tt.draws), func(t *testing.T) {
			cl := newCluster(t, 1, tt.samples, 1<<14,
				func(c *Config) { c.Assignment = plan.AssignSampler })
			defer cl.close()
			var trainers []*trainer
			for i := range tt.draws {
				tr := cl.mustOpen(t, i, tt.world, "sequential", tt.size)
				defer tr.close()
				trainers = append(trainers, tr)
			}
			for _, tr := range trainers {
				if _, err := tr.plan(0); err != nil {
					t.Fatal(err)
				}
			}
			for i, tr := range trainers {
				cl.tell(tr.Client, counted(0, counts{stats.HitsLocal: tt.draws[i][0], stats.TrainSeconds: 1}))
				worker := &trainer{
					Client: cl.connect(uint32(i), uint32(tt.world), 100), rank: i,
					world: tt.world,
				}
				if err := worker.open("sequential", tt.size); err != nil {
					t.Fatal(err)
				}
				cl.tell(worker.Client,
					counted(0, counts{stats.HitsLocal: tt.draws[i][1], stats.TrainSeconds: 1}))
				if err := worker.Close(); err != nil {
					t.Error(err)
				}
			}
			st := cl.nodes[0].status().Data[0]
			batches := (tt.samples + tt.world*tt.size - 1) / (tt.world * tt.size)
			if st.Batch != tt.batch || st.Batches != batches {
				t.Errorf("batch %d of %d, want %d of %d", st.Batch, st.Batches, tt.batch, batches)
			}
		})
	}
}

// lateTransport reports when it begins, and checks that no message is posted before.
type lateTransport struct {
	transport.Transport
	t     *testing.T
	begun *atomic.Bool
	begin func()
}

func (l lateTransport) Start(handle func(from int, msg []byte)) {
	l.begin()
	l.begun.Store(true)
	l.Transport.Start(handle)
}

func (l lateTransport) Post(to int, msg []byte) {
	if !l.begun.Load() {
		l.t.Error("posted before the transport had begun")
	}
	l.Transport.Post(to, msg)
}

// TestStatusFromTheFirst checks that a rank has measured itself before it accepts the first
// connection, so that STATUS always has its node.
func TestStatusFromTheFirst(t *testing.T) {
	cl := newCluster(t, 2, 10, 1<<14, func(c *Config) {
		var observed atomic.Int32
		rank := c.Transport.Rank()
		c.Observe = func(float64, int) stats.Machine {
			return stats.Machine{StorageReads: int64(observed.Add(1))}
		}
		c.Transport = lateTransport{c.Transport, t, new(atomic.Bool), func() {
			if observed.Load() != 1 {
				t.Errorf("rank %d has measured itself %d times before it serves", rank,
					observed.Load())
			}
		}}
	})
	defer cl.close()
	for r, n := range cl.nodes {
		if st := n.status(); !slices.ContainsFunc(st.Nodes,
			func(s stats.Reading) bool { return s.Rank == r && s.Machine.StorageReads > 0 }) {
			t.Errorf("rank %d reports %+v", r, st)
		}
	}
}

// TestTheLastLineCountsAllReads checks that a rank measures itself for the last time when storage
// has returned all that it requested, also ahead of training.
func TestTheLastLineCountsAllReads(t *testing.T) {
	open := make(chan struct{})
	var underWay, atTheEnd atomic.Int32
	cl := newCluster(t, 1, 120, 3000, func(c *Config) {
		c.Data[0].Storage = countedStorage{shutStorage{c.Data[0].Storage, open}, &underWay}
		c.Observe = func(float64, int) stats.Machine {
			atTheEnd.Store(underWay.Load())
			return stats.Machine{}
		}
	})
	if err := cl.plan(t, 0).close(); err != nil {
		t.Fatal(err)
	}
	if underWay.Load() == 0 {
		t.Fatal("nothing is read ahead")
	}
	s := cl.nodes[0].rank.Sets[0].Store()
	go func() {
		for closed := false; !closed; time.Sleep(time.Millisecond) {
			s.Locked(func() { closed = s.Closed() })
		}
		close(open)
	}()
	cl.close()
	if n := atTheEnd.Load(); n != 0 {
		t.Errorf("%d reads were under way", n)
	}
}

// countedStorage counts the reads under way.
type countedStorage struct {
	Storage
	underWay *atomic.Int32
}

func (c countedStorage) Fetch(id draw.SampleID, into []byte, need uint64, done func(error)) {
	c.underWay.Add(1)
	c.Storage.Fetch(id, into, need, func(err error) {
		c.underWay.Add(-1)
		done(err)
	})
}
