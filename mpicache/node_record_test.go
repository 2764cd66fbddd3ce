package mpicache

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"rankpool/mpicache/record"
)

// record records all ranks from now on, and returns the recording's path. It must be called before
// trainers connect.
func (c *cluster) record(session string) string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "recording")
	c.recordIn(path, session)
	return path
}

func (c *cluster) recordIn(path, session string) {
	c.t.Helper()
	for rank, n := range c.nodes {
		r, err := record.Create(path,
			record.Begin{Version: "test", Session: session, Rank: rank, Ranks: len(c.nodes)},
			slog.New(slog.DiscardHandler))
		if err != nil {
			c.t.Fatal(err)
		}
		n.cfg.Recorder = r
	}
}

// closeRecorded ends the cluster and its recordings.
func (c *cluster) closeRecorded() {
	c.t.Helper()
	c.close()
	for _, n := range c.nodes {
		if err := n.cfg.Recorder.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// replayed replays the recording of a rank and returns the result, which must be identical.
func replayed(t *testing.T, path string, rank int) *record.Result {
	t.Helper()
	f, err := os.Open(record.Path(path, rank))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	result, err := record.Replay(f)
	if err != nil {
		t.Fatalf("rank %d: %v", rank, err)
	}
	if d := result.Difference; d != nil {
		t.Fatalf("rank %d differs: %+v", rank, *d)
	}
	for _, row := range result.Rows {
		if row.Events == 0 || row.Commands == 0 || row.Epochs == 0 || row.CoordinatorEvents < 4 {
			t.Errorf("rank %d: %+v", rank, row)
		}
	}
	return result
}

// TestReplayIsIdentical records runs with memory that does not hold all samples, so that samples
// come from peers and from storage and are evicted, and with a sample that cannot be read.
// TestSilentPeer replays a run with a rank that falls silent.
func TestReplayIsIdentical(t *testing.T) {
	for _, sampler := range []string{"torch", "pads", "weighted-once"} {
		for _, c := range []struct {
			ranks, world  int
			capacityBytes int64
		}{{1, 1, 0}, {1, 2, 5000}, {2, 2, 2000}, {3, 6, 4000}} {
			t.Run(fmt.Sprintf("%s/%d-ranks-%d-bytes", sampler, c.ranks, c.capacityBytes),
				func(t *testing.T) {
					cl := newCluster(t, c.ranks, 240, c.capacityBytes)
					cl.storage.bad[7] = true
					path := cl.record("a")
					cl.train(c.world, 12/c.world, 3, sampler)
					cl.closeRecorded()
					for rank := range c.ranks {
						result := replayed(t, path, rank)
						if len(result.Rows) != 1 || result.Rows[0].Rank != rank ||
							result.Rows[0].Epochs < 3 || !result.Lives[0].Ended {
							t.Errorf("rank %d: %+v", rank, result)
						}
					}
				})
		}
	}
}

// TestReplayOfARankThatStartedAgain checks that the second life of a rank continues in the file of
// the first, and that another session does not.
func TestReplayOfARankThatStartedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	for i, c := range []struct {
		session string
		lives   int
	}{{"a", 1}, {"a", 2}, {"b", 1}} {
		cl := newCluster(t, 1, 60, 2000)
		cl.recordIn(path, c.session)
		cl.train(1, 12, 2, "pads")
		cl.closeRecorded()
		result := replayed(t, path, 0)
		if len(result.Lives) != c.lives || len(result.Rows) != c.lives ||
			result.Rows[c.lives-1].Start != c.lives {
			t.Errorf("recording %d: %+v", i, result)
		}
	}
}
