package dataset

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/staging/stagingtest"
)

// TestWriteAtomicFails checks that a write that fails leaves the old file, and nothing else.
func TestWriteAtomicFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	stagingtest.Must(t, os.WriteFile(path, []byte("old"), 0o644))
	full := errors.New("no space")
	err := writeAtomic(path, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 3<<20))
		stagingtest.Must(t, err)
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	data, err := os.ReadFile(path)
	stagingtest.Must(t, err)
	entries, err := os.ReadDir(dir)
	stagingtest.Must(t, err)
	if string(data) != "old" || len(entries) != 1 {
		t.Errorf("the file holds %d bytes, its folder %v", len(data), entries)
	}
}

// TestPipes reads a manifest and an index where there is a pipe that nobody writes to.
func TestPipes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	stagingtest.Must(t, unix.Mkfifo(pipe, 0o600))
	for want, open := range map[string]func(string) (*Manifest, error){
		"is not a parquet file": ReadParquet, "is not a sample index": OpenIndex,
	} {
		_, err := open(pipe) // without a writer, an open that waits never returns
		stagingtest.WantError(t, err, pipe, want)
	}
}
