package training

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStatesOfJobs checks that the files of a job are not mistaken for those of another.
func TestStatesOfJobs(t *testing.T) {
	rank := &Rank{Config: Config{Dir: t.TempDir()}}
	var all []*states
	for _, job := range []string{"", "a", "a-3", "b"} {
		s := &states{of: &Training{set: &Set{}, rank: rank, job: job}}
		if err := os.WriteFile(s.path(5), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		job := s.of.job
		if paths := s.paths(); len(paths) != 1 || paths[0] != s.path(5) {
			t.Errorf("job %q has the states %q", job, paths)
		}
		if name := filepath.Base(s.ownPath()); job != "" && !strings.Contains(name, job) {
			t.Errorf("job %q saves to %s", job, name)
		}
	}
	if name := PreviousState("a"); IsJobName(name) {
		t.Errorf("the state of the checkpoint before is that of job %s", name)
	}
}
