package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/slurm"
)

func TestSessionName(t *testing.T) {
	job := slurm.Job{JobID: "12", StepID: "0"}
	if got := Name(true, 1000, job, 7); got != "rankpool-1000-slurm12" {
		t.Errorf("in a batch script: %q", got)
	}
	first, second := Name(false, 1000, job, 7), Name(false, 1000, job, 7)
	if !strings.HasPrefix(first, "rankpool-1000-pid7-") || first == second {
		t.Errorf("elsewhere: %q and %q", first, second)
	}
}

func TestOpenSession(t *testing.T) {
	base := t.TempDir()
	s, err := Open(base, "s", 1)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.Dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
	if _, err := Open(base, "s", 1); err == nil ||
		!strings.Contains(err.Error(), "in use by another rankpool") {
		t.Errorf("a second launcher: %v", err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.lock.Close() // as if it was killed
	again, err := Open(base, "s", 1)
	if err != nil {
		t.Fatalf("after a launcher was killed: %v", err)
	}
	if _, err := os.Stat(filepath.Join(again.Dir, "left")); !os.IsNotExist(err) {
		t.Errorf("a dead run's file is still there: %v", err)
	}
	if err := again.Remove(); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(base); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestSocketPathLimit(t *testing.T) {
	fits := "/" + strings.Repeat("x", maxSocketPath-1)
	if err := CheckSocketPath(fits); err != nil {
		t.Errorf("%d bytes: %v", len(fits), err)
	}
	err := CheckSocketPath(fits + "x")
	if err == nil {
		t.Fatal("108 bytes fit")
	}
	for _, part := range []string{fits + "x", "108", "107", "--runtime-dir"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if _, err := Open("/tmp", strings.Repeat("x", 100), 1); err == nil {
		t.Error("a session with a path too long was made")
	}
}

func TestReclaimSessions(t *testing.T) {
	base, uid := t.TempDir(), os.Getuid()
	gone := 1 << 22 // the kernel's largest pid_max, so never a process
	old := time.Now().Add(-staleAfter - time.Minute)
	prefix := fmt.Sprintf("rankpool-%d-", uid)
	folder := func(name string, at time.Time) string {
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Join(dir, "r0"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	hold := func(path string) {
		f, err := LockFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
	}
	now := time.Now()
	folder(prefix+fmt.Sprintf("pid%d-1", gone), now) // its launcher is gone
	folder(prefix+"slurm1", old)                     // old, without a lock
	folder("."+prefix+"123", old)                    // was never finished
	// may be starting on another node
	folder(prefix+"slurm2", now)
	folder(prefix+fmt.Sprintf("pid%d-2", os.Getpid()), now)           // its launcher lives
	folder("rankpool-99999-slurm1", old)                              // another user's, by name
	folder("else", old)                                               // not ours at all
	hold(filepath.Join(folder(prefix+"slurm3", old), LockName))       // a launcher holds it
	hold(filepath.Join(folder(prefix+"slurm4", old), "r0", LockName)) // a rank holds it
	// locking has touched the folder
	for _, held := range []string{"slurm3", "slurm4"} {
		if err := os.Chtimes(filepath.Join(base, prefix+held), old, old); err != nil {
			t.Fatal(err)
		}
	}
	reclaimSessions(base)
	var left []string
	entries, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, strings.TrimPrefix(e.Name(), prefix))
	}
	want := []string{
		"else", fmt.Sprintf("pid%d-2", os.Getpid()), "rankpool-99999-slurm1", "slurm2",
		"slurm3", "slurm4",
	}
	slices.Sort(left)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), LockName)
	first, err := LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockFile(path); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a second lock: %v", err)
	}
	if !Locked(path) {
		t.Error("the lock is not seen")
	}
	first.Close()
	if Locked(path) {
		t.Error("the lock outlives its file")
	}
}
