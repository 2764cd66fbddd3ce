package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rankpool/slurm"
)

// TestBeginLife has rank 1 of a requeued job find folders of an earlier life, of this life, and of another rank that lives.
func TestBeginLife(t *testing.T) {
	session := t.TempDir()
	folder := func(rank int, life string) string {
		dir := rankFolder(session, rank)
		for name, text := range map[string]string{"state-0-3": "", lifeName: life} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	own := folder(1, "0")
	folder(2, "0")
	living := folder(3, "0")
	folder(4, "1")
	lock, err := lockFile(filepath.Join(living, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	r := &rankProcess{opt: &serveOptions{session: session}, dir: own}
	begin := func(restarts int) {
		t.Helper()
		if err := r.beginLife(slurm.Job{RestartCount: restarts}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(session, "r*", "state-*"))
		for i := range found {
			found[i] = filepath.Base(filepath.Dir(found[i]))
		}
		if err != nil || !slices.Equal(found, want) {
			t.Errorf("states of %v are there, not of %v", found, want)
		}
	}
	begin(1)
	check("r3", "r4")
	folder(1, "1")
	begin(1)
	check("r1", "r3", "r4")
}

// TestLeaveNothing checks who removes the session of a job that Slurm ends.
func TestLeaveNothing(t *testing.T) {
	session := filepath.Join(t.TempDir(), "session")
	r := &rankProcess{opt: &serveOptions{session: session}, dir: rankFolder(session, 0)}
	other := rankFolder(session, 1)
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, holder := range []string{filepath.Join(other, lockName), filepath.Join(session, lockName)} {
		lock, err := lockFile(holder)
		if err != nil {
			t.Fatal(err)
		}
		r.leaveNothing()
		if !isFolder(session) {
			t.Fatalf("the session was removed although %s is held", holder)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.leaveNothing()
	if isFolder(session) {
		t.Error("the session is left")
	}
}
