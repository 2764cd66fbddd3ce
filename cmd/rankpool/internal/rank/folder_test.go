package rank

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rankpool/cmd/internal/outlet/outlettest"
	"rankpool/cmd/rankpool/internal/session"
)

// launchFolder creates a rank's folder with an importance state, as a rank of a launch leaves it.
func launchFolder(t *testing.T, folder string, rank int, launch string) string {
	t.Helper()
	dir := session.RankFolder(folder, rank)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, launchName), []byte(launch), 0o600),
		os.WriteFile(filepath.Join(dir, "state-0-3"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBeginLaunch checks what rank 1 removes if it finds folders of an earlier launch, of this
// launch, and of another rank that is alive.
func TestBeginLaunch(t *testing.T) {
	folder := t.TempDir()
	begin := func(launch string, again bool, want ...string) {
		t.Helper()
		r := &ownFolder{
			opt: &Options{Session: folder, Launch: launch}, dir: session.RankFolder(folder, 1),
		}
		if err := r.beginLaunch(); err != nil || r.again != again {
			t.Fatal(r.again, err)
		}
		found, err := filepath.Glob(filepath.Join(folder, "r*", "state-*"))
		for i := range found {
			found[i] = filepath.Base(filepath.Dir(found[i]))
		}
		if err != nil || !slices.Equal(found, want) {
			t.Errorf("states of %v are there, not of %v", found, want)
		}
	}
	launchFolder(t, folder, 1, "before")
	begin("old", false)
	launchFolder(t, folder, 1, "old")
	launchFolder(t, folder, 2, "old")
	lock, err := session.LockFile(filepath.Join(launchFolder(t, folder, 3, "old"), session.LockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	begin("new", false, "r3")
	launchFolder(t, folder, 1, "new")
	launchFolder(t, folder, 4, "new")
	begin("new", true, "r1", "r3", "r4")
}

// TestLeaveNothing checks who removes the session of a job that Slurm ends.
func TestLeaveNothing(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "session")
	r := &ownFolder{opt: &Options{Session: folder}, dir: session.RankFolder(folder, 0)}
	other := session.RankFolder(folder, 1)
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, holder := range []string{
		filepath.Join(other, session.LockName),
		filepath.Join(folder, session.LockName),
	} {
		lock, err := session.LockFile(holder)
		if err != nil {
			t.Fatal(err)
		}
		r.leaveNothing()
		if !IsFolder(folder) {
			t.Fatalf("the session was removed although %s is held", holder)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.leaveNothing()
	if IsFolder(folder) {
		t.Error("the session is left")
	}
}

// lockedFolder creates the folder of a rank of a launch, whose lock another process holds, and
// returns the rank and that process.
func lockedFolder(t *testing.T, launch string) (*ownFolder, *exec.Cmd) {
	t.Helper()
	r := &ownFolder{opt: &Options{Launch: "this"}, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(r.dir, launchName), []byte(launch), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := session.LockFile(filepath.Join(r.dir, session.LockName))
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("sleep", "1000")
	holder.ExtraFiles = []*os.File{lock} // all processes with the file open hold a lock
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	return r, holder
}

func (r *ownFolder) lockText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, session.LockName))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func noteHolder(t *testing.T, r *ownFolder, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, session.LockName), []byte(strconv.Itoa(pid)),
		0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLockOfARankThatHangs checks that the previous rank is killed.
func TestLockOfARankThatHangs(t *testing.T) {
	r, holder := lockedFolder(t, "this")
	noteHolder(t, r, holder.Process.Pid)
	done := make(chan error, 1)
	go func() { done <- r.take(50 * time.Millisecond) }()
	_ = holder.Wait() // it was killed
	if err := <-done; err != nil || r.lockText(t) != strconv.Itoa(os.Getpid()) {
		t.Errorf("the lock has %q, %v", r.lockText(t), err)
	}
}

// TestLockOfARankThatCannotBeEnded checks that the previous rank keeps its lock, and this one gets
// another.
func TestLockOfARankThatCannotBeEnded(t *testing.T) {
	r, _ := lockedFolder(t, "this") // the process that holds it is unknown
	said := outlettest.Stderr(t, func() {
		if err := r.take(time.Millisecond); err != nil {
			t.Error(err)
		}
	})
	if !strings.Contains(
		said, "cannot be ended: the cache continues without the memory that it has") {
		t.Errorf("the log has %q", said)
	}
	if !session.Locked(filepath.Join(r.dir, session.LockName)) {
		t.Error("the folder is not locked")
	}
}

// TestLockOfAnotherRun checks that processes of other launches are not killed.
func TestLockOfAnotherRun(t *testing.T) {
	r, holder := lockedFolder(t, "another")
	noteHolder(t, r, holder.Process.Pid)
	if err := r.take(time.Millisecond); err == nil ||
		!strings.Contains(err.Error(), "another rank serves in") {
		t.Errorf("%v", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", holder.Process.Pid))
	if err != nil || strings.Contains(string(stat), ") Z") {
		t.Errorf("the other rank was ended: %s, %v", stat, err)
	}
}
