package simulator

import (
	"math"
	"testing"
	"time"

	"rankpool/scheduler/systems"
)

// TestNoPFSReadsWhereTheClusterIsFastest checks that NoPFS chooses its sources by the cluster file:
// if the link is slower than a rank's share of storage, it reads storage instead of a peer, and
// only what its own memory holds is a hit.
func TestNoPFSReadsWhereTheClusterIsFastest(t *testing.T) {
	run := func(linkBytesPerSecond int64, values systems.Values) *Result {
		cluster := &Cluster{
			SampleBytes: 1000, Trainer: Trainer{BatchSize: 1, Step: time.Millisecond},
			Loader:  Loader{Workers: 1, PrefetchFactor: 2},
			Storage: Storage{Curve: [][2]int64{{1, 4e6}, {4, 16e6}}},
			Network: Network{LinkBytesPerSecond: linkBytesPerSecond},
		}
		return mustRun(t, Config{
			Trace: permutations(400, 6), System: mustFind(t, "nopfs"), Values: values,
			Capacity: 0.5, Ranks: 4, BatchSize: 10, SkipEpochs: 2, Cluster: cluster,
		})
	}
	fast, slow := run(5e6, nil), run(3e6, nil)
	if fast.HitsRemote == 0 || slow.HitsRemote != 0 || slow.HitsLocal == 0 ||
		slow.StorageReads <= fast.StorageReads {
		t.Errorf("over 5 MB/s: %d hits of peers and %d reads; over 3 MB/s: %d and %d, with 4 "+
			"MB/s of storage", fast.HitsRemote, fast.StorageReads,
			slow.HitsRemote, slow.StorageReads)
	}
	if told := run(3e6, systems.Values{"network": 100}); told.HitsRemote != fast.HitsRemote {
		t.Error("the option network does not come before the cluster file")
	}
}

// TestNoPFSModelOfClusters checks that the machine that the paper simulates has the paper's model,
// and that latencies count on another machine.
func TestNoPFSModelOfClusters(t *testing.T) {
	c, err := LoadCluster("nopfs-sim")
	if err != nil {
		t.Fatal(err)
	}
	m := c.nopfsModel(Nodes{8, 1, 32}, c.SampleBytes)
	for clients, want := range map[int]float64{1: 330, 2: 730, 4: 1540, 8: 2870} {
		if got := m.PFS[clients-1]; math.Abs(got.MBps-want) > want/100 ||
			got.Clients != float64(clients) {
			t.Errorf("t(%v) is %v MB/s, want %v", got.Clients, got.MBps, want)
		}
	}
	if math.Abs(m.Network-24000) > 1 || math.Abs(m.Compute-64) > 0.1 {
		t.Errorf("b_c is %v and c is %v MB/s, want 24,000 and 64", m.Network, m.Compute)
	}
	c = &Cluster{
		Loader:  Loader{Workers: 4},
		Storage: Storage{Curve: [][2]int64{{1, 1e9}}, ReadLatency: 9 * time.Millisecond},
	}
	// 4 readers take 10 ms for 1 MB each
	if got := c.nopfsModel(Nodes{1, 1, 1}, 1_000_000).PFS[0].MBps; got != 400 {
		t.Errorf("4 readers of 1 MB in 10 ms get %v MB/s, want 400", got)
	}
}
