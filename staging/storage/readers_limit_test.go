package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"rankpool/staging/stagingtest"
)

// TestWriteReadersLimit writes the file that the Python tests read,
// docs/wire/storage_limit_golden.bin.
func TestWriteReadersLimit(t *testing.T) {
	golden, err := os.ReadFile("../../docs/wire/storage_limit_golden.bin")
	stagingtest.Must(t, err)
	folder := t.TempDir()
	path := filepath.Join(folder, readersLimitName)
	stagingtest.Must(t, WriteReadersLimit(folder, 1<<20, 250.5))
	got, err := os.ReadFile(path)
	stagingtest.Must(t, err)
	if !bytes.Equal(got, golden) {
		t.Fatalf("%x, want %x", got, golden)
	}

	got[24] = 7 // a trainer reads
	stagingtest.Must(t, os.WriteFile(path, got, 0o600))
	before, err := os.Stat(path)
	stagingtest.Must(t, err)
	stagingtest.Must(t, WriteReadersLimit(folder, 1<<20, 250.5))
	after, err := os.Stat(path)
	stagingtest.Must(t, err)
	if !os.SameFile(before, after) {
		t.Error("a rank that is restarted took the file away from the trainers")
	}
	stagingtest.Must(t, WriteReadersLimit(folder, 2<<20, 250.5))
	if now, err := os.ReadFile(path); err != nil || bytes.Equal(now[:24], golden[:24]) {
		t.Errorf("another limit is not written: %x, %v", now, err)
	}
	if err := WriteReadersLimit(filepath.Join(folder, "none"), 1, 1); err == nil {
		t.Error("no folder, and no error")
	}
}
