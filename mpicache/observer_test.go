package mpicache

import (
	"testing"
	"time"
)

// TestStats checks what the ranks say about themselves against the epochs of the run log, and that rank 0 hears of all of them.
func TestStats(t *testing.T) {
	const ranks, samples = 3, 240
	cl := newCluster(t, ranks, samples, 1<<14, func(c *Config) {
		c.NodeEvery = time.Hour // only the last lines
		c.Observe = func(stallSeconds float64, trainers int) Machine {
			return Machine{StorageReads: int64(trainers), MemoryLimit: "none"}
		}
	})
	cl.train(ranks, 4, 3, "pads")
	for r, n := range cl.nodes {
		if st := n.Stats(); st.Rank != r || st.ResidentBytes <= 0 || st.ResidentBytes > 1<<14 || st.Residents == 0 || st.UsedBytes < st.ResidentBytes {
			t.Errorf("rank %d: %+v", r, st)
		}
	}
	cl.close()
	var nodes []RankStats
	var sum RankStats
	var epochs, importance int
	for _, line := range cl.records {
		switch line := line.(type) {
		case nodeRecord:
			nodes = append(nodes, line.RankStats)
			sum.add(&line.RankStats)
		case epochRecord:
			epochs++
			sum.HitsLocal -= line.HitsLocal
			sum.HitsRemote -= line.HitsRemote
			sum.StorageReads -= line.StorageReads
			sum.FallbackReads -= line.FallbackReads
		case importanceRecord:
			importance++
			total := int64(0)
			for _, n := range line.Counts {
				total += n
			}
			if total != samples || len(line.Edges) != len(line.Counts)+1 || line.Epoch != importance-1 {
				t.Errorf("importance: %+v", line)
			}
		}
	}
	if len(nodes) != ranks || epochs != 3 || importance != 3 {
		t.Fatalf("%d lines of ranks, %d of epochs, %d of importance: %+v", len(nodes), epochs, importance, cl.records)
	}
	if sum.HitsLocal != 0 || sum.HitsRemote != 0 || sum.StorageReads != 0 || sum.FallbackReads != 0 {
		t.Errorf("the ranks counted %+v more than the epochs", sum)
	}
	peers := int64(0)
	for r, st := range nodes {
		if st.Rank != r || st.Data == "train" != (st.Epoch >= 0) || st.Epoch > 2 || st.Machine.MemoryLimit != "none" {
			t.Errorf("line of rank %d: %+v", r, st)
		}
		peers += st.PeerBytes
	}
	if peers == 0 {
		t.Error("no bytes came from peers")
	}
}

// TestSilentRanksAreLeftOut checks that rank 0 tells only of ranks that were heard of lately.
func TestSilentRanksAreLeftOut(t *testing.T) {
	cl := newCluster(t, 2, 10, 1<<14)
	defer cl.close()
	o, now := &cl.nodes[0].observer, time.Now().Add(time.Hour)
	o.take(0, RankStats{Rank: 0}, now)
	o.take(1, RankStats{Rank: 1}, now.Add(-silentRank+time.Millisecond))
	if got := o.ranks(now); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if got := o.ranks(now.Add(time.Millisecond)); len(got) != 1 || got[0].Rank != 0 {
		t.Errorf("%+v", got)
	}
}

// TestStatsBeginWithTheRank checks that a rank leaves out what a trainer counted with the rank before it, but for what it read itself when
// there was none.
func TestStatsBeginWithTheRank(t *testing.T) {
	cl := newCluster(t, 1, 10, 1<<14)
	defer cl.close()
	n := cl.nodes[0]
	const worker, epoch = 99, 7
	n.streams[0].onTally(worker, tally{epoch: epoch, hitsLocal: 5, storage: 2, fallback: 3, stallMicroseconds: 1e6}, false)
	if st := n.Stats(); st.HitsLocal != 0 || st.StorageReads != 0 || st.FallbackReads != 3 || st.StallSeconds != 0 {
		t.Errorf("%+v", st)
	}
	n.streams[0].onTally(worker, tally{epoch: epoch, hitsLocal: 9, storage: 2, fallback: 3, stallMicroseconds: 3e6}, true)
	if st := n.Stats(); st.HitsLocal != 4 || st.StorageReads != 0 || st.FallbackReads != 3 || st.StallSeconds != 2 {
		t.Errorf("%+v", st)
	}
	if c := n.streams[0].sum(epoch); c.HitsLocal != 9 || c.StorageReads != 2 {
		t.Errorf("the epoch's count is %+v", c)
	}
}
