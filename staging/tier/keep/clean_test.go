package keep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClean checks that old copies are removed, and nothing else that is in the folder.
func TestClean(t *testing.T) {
	w := newWorld(t, 300, 1<<30)
	w.fill()
	files := w.files()
	other := filepath.Join(filepath.Dir(files[0]), "model.pt")
	if err := os.WriteFile(other, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(files[0], long, long); err != nil {
		t.Fatal(err)
	}
	bytes := held(t, files)
	n, removed, err := Clean(w.dir, time.Now().Add(-24*time.Hour))
	if err != nil || n != 1 || removed != bytes-held(t, files[1:]) {
		t.Errorf("%d files, %d bytes, %v", n, removed, err)
	}
	n, _, err = Clean(w.dir, time.Now().Add(time.Hour))
	if err != nil || n != len(files)-1 {
		t.Errorf("%d files of %d, %v", n, len(files)-1, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	if n, _, err := Clean(t.TempDir(), time.Now()); n != 0 || err != nil {
		t.Errorf("a folder without copies: %d, %v", n, err)
	}
	dir := t.TempDir()
	if err := mkdirOf(filepath.Join(dir, filepath.Base(filepath.Dir(other))), 20001); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Clean(dir, time.Now()); err == nil ||
		!strings.Contains(err.Error(), "belongs to user 20001") {
		t.Errorf("another user's part: %v", err)
	}
}
