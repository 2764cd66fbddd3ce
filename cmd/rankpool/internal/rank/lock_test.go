package rank

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rankpool/cmd/rankpool/internal/outlet/outlettest"
	"rankpool/cmd/rankpool/internal/session"
)

// lockedFolder creates the folder of a rank of a launch, whose lock another process holds, and
// returns the rank and that process.
func lockedFolder(t *testing.T, launch string) (*process, *exec.Cmd) {
	t.Helper()
	r := &process{opt: &Options{Launch: "this"}, dir: t.TempDir()}
	if err := (life{key: launch}).write(r.dir); err != nil {
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

func (r *process) lockText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, session.LockName))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func noteHolder(t *testing.T, r *process, pid int) {
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
	go func() { done <- r.lockFolder(50 * time.Millisecond) }()
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
		if err := r.lockFolder(time.Millisecond); err != nil {
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
	if err := r.lockFolder(time.Millisecond); err == nil ||
		!strings.Contains(err.Error(), "another rank serves in") {
		t.Errorf("%v", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", holder.Process.Pid))
	if err != nil || strings.Contains(string(stat), ") Z") {
		t.Errorf("the other rank was ended: %s, %v", stat, err)
	}
}
