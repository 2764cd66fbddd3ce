package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"rankpool/cmd/rankpool/internal/control"
)

// TestProgressLines: where stderr is a file there are plain lines, and no carriage returns.
func TestProgressLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stderr")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	s := control.DataStatus{Name: "train", Epoch: 2, Batch: 10, Batches: 100, Hits: 3, Draws: 4}
	train := newTrainProgress(f, time.Nanosecond)
	train.update(s)
	train.update(control.DataStatus{}) // nothing is known yet
	train.end()
	newTrainProgress(f, 0).update(s)         // switched off
	newTrainProgress(f, time.Hour).update(s) // not due
	scan := newScanProgress(f, false)
	scan.begin, scan.last = scan.begin.Add(-time.Hour), scan.last.Add(-time.Hour)
	scan.update(7300)
	scan.update(7301) // not due
	scan.end()
	newScanProgress(f, true).update(9000)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "rankpool: train epoch 2: batch 10 of 100, hits 75.0 %\nrankpool: indexed 7,300 files in 3600 s (2 files/s)\n"
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
