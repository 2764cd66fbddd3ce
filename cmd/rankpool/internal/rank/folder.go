package rank

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache/files"
	"rankpool/slurm"
)

// An ownFolder is a rank's folder, in which it keeps what outlives it.
type ownFolder struct {
	opt   *Options
	job   slurm.Job
	dir   string
	again bool // run starts this rank again
	lock  *os.File
}

// open creates and locks the folder: a rank that died before may have left its importance states
// there.
func (f *ownFolder) open(rank int) error {
	f.dir = session.RankFolder(f.opt.Session, rank)
	if err := session.CheckSocketPath(filepath.Join(f.dir, session.DoorName)); err != nil {
		return err
	}
	if err := os.MkdirAll(f.opt.Session, 0o700); err != nil {
		return err
	}
	if err := session.CheckFolder(f.opt.Session); err != nil {
		return err
	}
	if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := session.CheckFolder(f.dir); err != nil {
		return err
	}
	if err := f.take(exit.Patience); err != nil {
		return err
	}
	if err := f.beginLaunch(); err != nil {
		return err
	}
	if err := session.NoteJob(f.dir, f.job); err != nil {
		return err
	}
	session.NoteStep(f.opt.Session, session.CacheStepName, f.job)
	return os.WriteFile(filepath.Join(f.dir, session.MetName), nil, 0o600)
}

// take locks the rank's own folder, so that no other rank serves there.
//
// An earlier rank of the same launch may still hold the lock. It was asked to end, and is killed if
// it has not after patience. A rank that survives even that, because it waits in the kernel for a
// device or a server that does not respond, keeps its lock and its memory: this rank then creates a
// new lock, and uses the memory that is left.
func (f *ownFolder) take(patience time.Duration) error {
	path := filepath.Join(f.dir, session.LockName)
	lock, err := session.LockFile(path)
	if errors.Is(err, unix.EWOULDBLOCK) && launchOf(f.dir) == f.opt.Launch {
		lock, err = takeLock(path, patience)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another rank serves in %s: give every run its own --runtime-dir", f.dir)
	}
	if err != nil {
		return err
	}
	f.lock = lock
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
	if text, err := files.Read(path); err == nil {
		if pid, err := strconv.Atoi(string(text)); err == nil && pid > 1 {
			holder = fmt.Sprint("process ", pid)
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended meanwhile
		}
	}
	if lock, err := awaitLock(path, patience); !errors.Is(err, unix.EWOULDBLOCK) {
		return lock, err
	}
	messages.Say("the previous rank, %s, cannot be ended: the cache continues without the memory "+
		"that it has", holder)
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

// launchName is the file in a rank's folder that names the launch in which the folder was made. A
// launch includes the restarts of its ranks.
const launchName = "launch"

// NewLaunch returns a unique name for a launch.
func NewLaunch() string {
	return fmt.Sprintf("%s-%08x", time.Now().UTC().Format("20060102T150405Z"), rand.Uint32())
}

// beginLaunch removes what an earlier launch left on this node when it was killed: states of epochs
// that the other ranks do not have, and folders of ranks that are now on other nodes. The rank's
// own folder is locked; files of an earlier rank of the same launch stay in it.
func (f *ownFolder) beginLaunch() error {
	f.again = launchOf(f.dir) == f.opt.Launch
	for _, folder := range session.RankFolders(f.opt.Session) {
		if before := launchOf(folder); before != "" && before != f.opt.Launch {
			if err := f.clear(folder); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(f.dir, launchName), []byte(f.opt.Launch), 0o600)
}

// launchOf returns the launch in which a rank's folder was made; "" if the folder does not say.
func launchOf(folder string) string {
	text, _ := files.Read(filepath.Join(folder, launchName))
	return string(text)
}

// clear removes everything in the rank's own folder but the lock, or another's folder that no
// process holds.
func (f *ownFolder) clear(folder string) error {
	if folder != f.dir {
		if session.Locked(filepath.Join(folder, session.LockName)) {
			return nil
		}
		return os.RemoveAll(folder)
	}
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if entry.Name() != session.LockName && err == nil {
			err = os.RemoveAll(filepath.Join(folder, entry.Name()))
		}
	}
	return err
}

// leaveNothing removes the session from a node where nothing else will: the job ends, and Slurm
// starts no more steps in it.
func (f *ownFolder) leaveNothing() {
	for _, folder := range session.RankFolders(f.opt.Session) {
		if folder != f.dir && session.Locked(filepath.Join(folder, session.LockName)) {
			return // the last rank does
		}
	}
	if !session.LauncherHolds(f.opt.Session) {
		_ = os.RemoveAll(f.opt.Session) // else the next run does
	}
}
