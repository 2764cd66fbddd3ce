// Package stagingtest holds what the tests of the packages below staging share.
package stagingtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ModTime is the modification time of every file that Tree and Grow make.
var ModTime = time.Date(2024, 2, 29, 12, 30, 0, 123_456_789, time.UTC)

// Tree makes files below a new folder and returns it. An entry is a path; "path -> target" is a
// symbolic link, "path/" an empty folder. A file holds its own path.
func Tree(t testing.TB, entries ...string) string {
	t.Helper()
	root := t.TempDir()
	Grow(t, root, entries...)
	return root
}

// Grow adds entries to a tree.
func Grow(t testing.TB, root string, entries ...string) {
	t.Helper()
	for _, entry := range entries {
		rel, target, isLink := strings.Cut(entry, " -> ")
		path := filepath.Join(root, rel)
		Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch {
		case isLink:
			Must(t, os.Symlink(target, path))
		case strings.HasSuffix(rel, "/"):
			Must(t, os.MkdirAll(path, 0o755))
		default:
			Must(t, os.WriteFile(path, []byte(rel), 0o644))
			Must(t, os.Chtimes(path, ModTime, ModTime))
		}
	}
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantError fails the test unless err's text holds every one of parts, and is one line.
func WantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is not one line", err)
	}
}
