package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/cmd/rankpool/internal/session"
	"rankpool/slurm"
)

// makeFiles creates empty files and their folders below a new folder that belongs to this user.
func makeFiles(t *testing.T, folder string, names ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), folder)
	for _, name := range append(names, "") {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "" {
			continue
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A mistyped --session must not remove any folder.
func TestEndTouchesOnlySessions(t *testing.T) {
	dir := makeFiles(t, "results", "model.pt", "r0/notes", "lock.old")
	if err := endRanks(dir, false); err == nil ||
		!strings.Contains(err.Error(), dir+" is not the folder of a session") {
		t.Errorf("another folder: %v", err)
	}
	for _, name := range []string{"model.pt", "r0/notes", "lock.old"} {
		if !session.Exists(filepath.Join(dir, name)) {
			t.Errorf("%s is gone", name)
		}
	}

	for _, dir := range []string{
		makeFiles(t, session.Name(false, os.Getuid(), slurm.Job{}, 7), "left"),
		filepath.Join(t.TempDir(), "none"),
	} {
		if err := endRanks(dir, false); err != nil || session.Exists(dir) {
			t.Errorf("%s: %v, there is still one: %v", dir, err, session.Exists(dir))
		}
	}
}

func TestEndKeeps(t *testing.T) {
	dir := makeFiles(t, session.Name(false, os.Getuid(), slurm.Job{}, 7), "r0/lock", "r0/state-0-1")
	if err := endRanks(dir, true); err != nil ||
		!session.Exists(filepath.Join(dir, "r0/state-0-1")) {
		t.Errorf("%v", err)
	}
}
