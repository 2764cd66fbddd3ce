package stage

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestTwoRunsIntoOneDestination starts several runs at once: at least one of them stages, and the
// others return the reason why they do not.
func TestTwoRunsIntoOneDestination(t *testing.T) {
	src, base := wideTree(t), t.TempDir()
	const runs = 4
	errs := make([]error, runs)
	var began, all sync.WaitGroup
	began.Add(runs)
	for run := range runs {
		all.Go(func() {
			began.Done()
			began.Wait()
			reports, failed := stageAll(1, src, base,
				func(_ int, o *Options) { o.Mode, o.Dest = Replicate, filepath.Join(base, "all") })
			errs[run] = failed[0]
			if failed[0] == nil && reports[0].Failed > 0 {
				t.Errorf("%d items failed, as %v", reports[0].Failed, reports[0].Failures[0])
			}
		})
	}
	all.Wait()
	staged := 0
	for _, err := range errs {
		switch {
		case err == nil:
			staged++ // several may stage one after another
		case !strings.Contains(err.Error(), "another \"rankpool "+
			"stage\" writes to "+filepath.Join(base, "all")):
			t.Error(err)
		}
	}
	if staged == 0 {
		t.Errorf("nobody has staged: %v", errs)
	}
	if _, failed := stageAll(1, src, base, func(_ int, o *Options) {
		o.Mode, o.Dest = Replicate, filepath.Join(base, "all")
	}); failed[0] != nil {
		t.Errorf("afterwards: %v", failed[0])
	}
}

// wideTree is a data set that takes a moment to stage.
func wideTree(t *testing.T) string {
	dir := t.TempDir()
	for i := range 1000 {
		mustDo(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, 1000), 0o600))
	}
	return dir
}
