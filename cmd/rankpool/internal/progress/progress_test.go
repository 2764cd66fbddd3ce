package progress

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"rankpool/mpicache/door"
)

// TestProgressLines checks that a file gets plain lines, without carriage returns.
func TestProgressLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stderr")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	s := door.DataStatus{Name: "train", Epoch: 2, Batch: 10, Batches: 100, Hits: 3, Draws: 4}
	train := NewTrain(f, time.Nanosecond)
	train.Update(s)
	train.Update(door.DataStatus{}) // no status yet
	train.End()
	NewTrain(f, 0).Update(s)         // switched off
	NewTrain(f, time.Hour).Update(s) // not due
	scan := NewScan(f, false)
	scan.begin, scan.last = scan.begin.Add(-time.Hour), scan.last.Add(-time.Hour)
	scan.Update(7300)
	scan.Update(7301) // not due
	scan.End()
	NewScan(f, true).Update(9000)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "rankpool: train epoch 2: batch 10 of 100, hits 75.0 %\n" +
		"rankpool: indexed 7,300 files in 3600 s (2 files/s)\n"
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
