package mpicache

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/scheduler/protocol"
)

// TestStateFileStaysUntilRead checks that planning the epoch again that a state file was saved in
// does not overwrite the file: the other ranks may read it later.
func TestStateFileStaysUntilRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	begin := func() (*cluster, *trainer) {
		cl := newCluster(t, 1, 240, 5000, func(cfg *Config) { cfg.StatePath = path })
		return cl, cl.plan(t, 0)
	}
	cl, tr := begin()
	const trained = 10
	for b := range uint32(trained) {
		ids, lease, _, err := tr.get(0, int(b))
		if err != nil {
			t.Fatal(err)
		}
		report := u32s(0, 0, b, uint32(len(ids)))
		for _, id := range ids {
			report = append(report, u32s(0x3f000000+id<<8)...)
		}
		if err := tr.Send(door.KindReport, report); err != nil {
			t.Fatal(err)
		}
		if err := tr.Send(door.KindRelease, tr.tally.Append(u32s(1, lease))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tr.Call(door.KindSave, u32s(0, 0, trained)); err != nil {
		t.Fatal(err)
	}
	tr.close()
	cl.close()
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	cl, tr = begin()
	cl.nodes[0].rank.Sets[0].Find("").AwaitStates()
	now, err := os.ReadFile(path)
	if err != nil || !slices.Equal(now, saved) {
		t.Errorf("the state file changed when its epoch was planned again (%v)", err)
	}
	cl.nodes[0].coordinating(func(c *protocol.Coordinator) {
		if got := c.Ledger().Final(0); got != 0 {
			t.Errorf("%d batches are final although training begins with the first", got)
		}
	})
	tr.close()
	cl.close()
}
