package rank

import (
	"log/slog"
	"path/filepath"
	"testing"
)

// TestRunLogOfTwoRuns checks that one run at a time writes to a file, and any number to a device.
func TestRunLogOfTwoRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	first, err := openRunLog(path, slog.Default(), false)
	if err != nil {
		t.Fatal(err)
	}
	want := "another run writes to " + path + ": name another file"
	if _, err := openRunLog(path, slog.Default(), false); err == nil || err.Error() != want {
		t.Errorf("a second run: %v, want %s", err, want)
	}
	first.Close(0) // keeps it open until here
	for range 2 {
		if _, err := openRunLog("/dev/null", slog.Default(), false); err != nil {
			t.Error(err)
		}
	}
}
