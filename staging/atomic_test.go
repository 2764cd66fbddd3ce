package staging

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteAtomicFails checks that a write that fails leaves the old file, and nothing else.
func TestWriteAtomicFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, os.WriteFile(path, []byte("old"), 0o644))
	full := errors.New("no space")
	err := writeAtomic(path, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 3<<20))
		must(t, err)
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	entries, err := os.ReadDir(dir)
	must(t, err)
	if string(data) != "old" || len(entries) != 1 {
		t.Errorf("the file holds %d bytes, its folder %v", len(data), entries)
	}
}
