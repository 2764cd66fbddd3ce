package rank

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/rankpool/internal/outlet"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
)

// lockFolder locks the rank's own folder, so that no other rank serves there.
//
// An earlier rank of the same launch may still hold the lock. It was asked to end, and is killed if
// it has not after patience. A rank that survives even that, because it waits in the kernel for a
// device or a server that does not respond, keeps its lock and its memory: this rank then creates a
// new lock, and uses the memory that is left.
func (r *process) lockFolder(patience time.Duration) error {
	path := filepath.Join(r.dir, session.LockName)
	lock, err := session.LockFile(path)
	if before, known := readLife(r.dir); errors.Is(err, unix.EWOULDBLOCK) && known &&
		before.key == r.opt.Launch && r.opt.Launch != "" {
		lock, err = takeLock(path, patience)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another rank serves in %s: give every run its own --session", r.dir)
	}
	if err != nil {
		return err
	}
	r.lock = lock
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteString(strconv.Itoa(os.Getpid())) // for the next rank
	return err
}

// takeLock waits for the lock at path, kills its holder, and replaces the lock if that does not
// help.
func takeLock(path string, patience time.Duration) (*os.File, error) {
	if lock, err := awaitLock(path, patience); !errors.Is(err, unix.EWOULDBLOCK) {
		return lock, err
	}
	holder := "an unknown process"
	if text, err := mpicache.ReadFile(path); err == nil {
		if pid, err := strconv.Atoi(string(text)); err == nil && pid > 1 {
			holder = fmt.Sprint("process ", pid)
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended meanwhile
		}
	}
	if lock, err := awaitLock(path, patience); !errors.Is(err, unix.EWOULDBLOCK) {
		return lock, err
	}
	fmt.Fprintf(outlet.Stderr, "rankpool: the previous rank, %s, cannot be ended: the cache "+
		"continues without the memory that it has\n", holder)
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return session.LockFile(path)
}

// awaitLock is session.LockFile for a lock that may become free within patience.
func awaitLock(path string, patience time.Duration) (*os.File, error) {
	for end := time.Now().Add(patience); ; time.Sleep(session.PollEvery) {
		lock, err := session.LockFile(path)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return lock, err
		}
	}
}
