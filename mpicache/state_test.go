package mpicache

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rankpool/mpicache/door"
)

// TestStatesOfJobs checks that the files of a job are not mistaken for those of another.
func TestStatesOfJobs(t *testing.T) {
	cl := newCluster(t, 1, 60, 1000)
	defer cl.close()
	set := cl.nodes[0].streams[0].samples
	for _, job := range []string{"", "a", "a-3", "b"} {
		set.locked(func() {
			s, err := set.join(job)
			if err == nil {
				err = os.WriteFile(s.statePath(5), nil, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, s := range set.streams {
		if paths := s.statePaths(); len(paths) != 1 || paths[0] != s.statePath(5) {
			t.Errorf("job %q has the states %q", s.job, paths)
		}
		if name := filepath.Base(s.ownStatePath()); s.job != "" && !strings.Contains(name, s.job) {
			t.Errorf("job %q saves to %s", s.job, name)
		}
	}
	if name := previousState("a"); IsJobName(name) {
		t.Errorf("the state of the checkpoint before is that of job %s", name)
	}
}

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
	s := cl.nodes[0].streams[0]
	s.mu.Lock()
	saving := s.saving
	s.mu.Unlock()
	if saving != nil {
		<-saving
	}
	now, err := os.ReadFile(path)
	if err != nil || !slices.Equal(now, saved) {
		t.Errorf("the state file changed when its epoch was planned again (%v)", err)
	}
	s.locked(func() {
		if got := s.coordinator.Ledger().Final(0); got != 0 {
			t.Errorf("%d batches are final although training begins with the first", got)
		}
	})
	tr.close()
	cl.close()
}
