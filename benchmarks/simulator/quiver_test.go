package simulator

import (
	"testing"

	"rankpool/scheduler/systems"
)

// quiverSeconds returns a system's time of an epoch at MLPerf's ResNet-50.
func quiverSeconds(
	t *testing.T, system string, capacity float64, ranks, jobs int, values systems.Values,
) float64 {
	t.Helper()
	cluster, err := LoadCluster("mlperf-resnet50")
	if err != nil {
		t.Fatal(err)
	}
	return mustRun(t, Config{
		Trace: &Trace{Losses: recorded(t, 5)}, System: mustFind(t, system), Values: values,
		Capacity: capacity, Ranks: ranks,
		BatchSize: 64, Jobs: jobs, SkipEpochs: 3, Cluster: cluster,
	}).EpochSeconds
}

// TestQuiverSection54 checks that a single job whose data does not fit gains no more than what two
// chunks keep over an epoch's end: it reads from the remote store in the steady state. Only with
// packed chunks is it as fast as with all data in memory.
func TestQuiverSection54(t *testing.T) {
	lru, coordl := quiverSeconds(t, "lru", 0.2, 4, 1, nil),
		quiverSeconds(t, "coordl", 0.2, 4, 1, nil)
	full := quiverSeconds(t, "quiver", 1, 4, 1, nil)
	single, packed := quiverSeconds(t, "quiver", 0.2, 4, 1, nil),
		quiverSeconds(t, "quiver", 0.2, 4, 1, systems.Values{"packed": 1})
	t.Logf("lru %.2f s, coordl %.2f s, quiver %.2f s, packed %.2f s, all in memory %.2f s", lru,
		coordl, single, packed, full)
	if single < coordl || single < 0.85*lru {
		t.Errorf("one job takes %.2f s, LRU %.2f s and CoorDL %.2f s", single, lru, coordl)
	}
	if packed > 1.01*full {
		t.Errorf("packed chunks take %.2f s, all in memory %.2f s", packed, full)
	}
}

// TestQuiverTable3 checks that co-operative misses of seven jobs lie between hits and misses, as in
// the paper: 1.65 times the hits' time, and 2.35 times faster than misses.
func TestQuiverTable3(t *testing.T) {
	miss, hit := quiverSeconds(t, "lru", 0.0002, 1, 7, nil),
		quiverSeconds(t, "quiver", 1, 1, 7, nil)
	cooperative := quiverSeconds(t, "quiver", 0.2, 1, 7, nil)
	t.Logf("misses %.2f s, hits %.2f s, co-operative misses %.2f s", miss, hit, cooperative)
	if cooperative < 1.3*hit || cooperative > miss/2.35 {
		t.Errorf("co-operative misses take %.2f s, hits %.2f s, misses %.2f s", cooperative, hit,
			miss)
	}
}

// TestSubstituteReads checks that a read of storage counts even if it serves a draw of another
// sample: the reads of one job of Quiver, on a data set that does not fit, are those that its draws
// count, nearly all for draws of other samples. CoorDL reads each sample for its own draw.
func TestSubstituteReads(t *testing.T) {
	for _, c := range []struct {
		system string
		// least share of reads that are for draws of others; the most is 0.1 above
		others float64
	}{{"quiver", 0.9}, {"coordl", 0}} {
		r := mustRun(
			t, Config{
				Trace: permutations(1000, 8), System: mustFind(t, c.system), Capacity: 0.2,
				Ranks: 2, BatchSize: 10, SkipEpochs: 3,
			})
		if r.StorageReads < 4000 || r.StorageReads > r.StorageBytes ||
			r.StorageBytes-r.StorageReads > 200 {
			t.Errorf("%s: %d draws were read, and %d samples of one byte", c.system, r.StorageReads,
				r.StorageBytes)
		}
		if share := float64(r.SubstituteReads) / float64(r.StorageReads); share < c.others ||
			share > c.others+0.1 {
			t.Errorf("%s: %d of %d reads were for others", c.system, r.SubstituteReads,
				r.StorageReads)
		}
		if r.Draws != r.Hits+r.Substituted+r.StorageReads {
			t.Errorf("%s: %d draws are not %d hits, %d substituted and %d read", c.system, r.Draws,
				r.Hits, r.Substituted, r.StorageReads)
		}
	}
}
