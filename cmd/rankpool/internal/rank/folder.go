package rank

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
)

// openFolder creates and locks the rank's folder: a rank that died before may have left its
// importance states there.
func (r *process) openFolder() error {
	if r.opt.Session == "" {
		if r.job.JobID == "" {
			return exit.Usagef("serve outside Slurm needs --session DIR, the folder where the " +
				"training processes find it")
		}
		session, err := session.OfJob(r.job)
		if err != nil {
			return err
		}
		r.opt.Session = session
	}
	r.dir = session.RankFolder(r.opt.Session, r.transport.Rank())
	if err := session.CheckSocketPath(filepath.Join(r.dir, session.DoorName)); err != nil {
		return err
	}
	if err := os.MkdirAll(r.opt.Session, 0o700); err != nil {
		return err
	}
	if err := session.CheckFolder(r.opt.Session); err != nil {
		return err
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := session.CheckFolder(r.dir); err != nil {
		return err
	}
	if err := r.lockFolder(exit.Patience); err != nil {
		return err
	}
	if err := r.beginLife(); err != nil {
		return err
	}
	if err := session.NoteJob(r.dir, r.job); err != nil {
		return err
	}
	session.NoteStep(r.opt.Session, session.CacheStepName, r.job)
	return os.WriteFile(filepath.Join(r.dir, session.MetName), nil, 0o600)
}

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

// lifeName is the file in a rank's folder that identifies the life in which the folder was made.
const lifeName = "life"

// A life is one launch of the ranks, including their restarts.
type life struct {
	// the current life, the same on all ranks: the value of --launch, else the number of times that
	// the job was requeued
	key    string
	launch string // its name in the run log
}

// NewLaunch returns a unique name for a launch.
func NewLaunch() string {
	return fmt.Sprintf("%s-%08x", time.Now().UTC().Format("20060102T150405Z"), rand.Uint32())
}

// beginLife removes what an earlier launch left on this node when it was killed: states of epochs
// that the other ranks do not have, and folders of ranks that are now on other nodes. The rank's
// own folder is locked; files of an earlier rank of the same life stay in it.
func (r *process) beginLife() error {
	before, known := readLife(r.dir)
	r.again = known && before.key == r.opt.Launch && r.opt.Launch != ""
	r.life = life{key: r.opt.Launch, launch: r.opt.Launch}
	if r.life.key == "" { // started by hand
		r.life = life{key: strconv.Itoa(r.job.RestartCount), launch: NewLaunch()}
	}
	if known && before.key == r.life.key && before.launch != "" {
		r.life.launch = before.launch
	}
	for _, folder := range session.RankFolders(r.opt.Session) {
		if before, known := readLife(folder); known && before.key != r.life.key {
			if err := r.clear(folder); err != nil {
				return err
			}
		}
	}
	return r.life.write(r.dir)
}

// endLaunch removes the launch's name when training has ended but the folder may stay: anything
// started in it by hand is another training.
func (r *process) endLaunch() {
	r.life.launch = ""
	_ = r.life.write(r.dir) // on failure the next training has the same name
}

func readLife(folder string) (l life, known bool) {
	text, err := mpicache.ReadFile(filepath.Join(folder, lifeName))
	l.key, l.launch, _ = strings.Cut(string(text), " ")
	return l, err == nil
}

func (l life) write(folder string) error {
	return os.WriteFile(filepath.Join(folder, lifeName), []byte(l.key+" "+l.launch), 0o600)
}

// clear removes everything in the rank's own folder but the lock, or another's folder that no
// process holds.
func (r *process) clear(folder string) error {
	if folder != r.dir {
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
func (r *process) leaveNothing() {
	for _, folder := range session.RankFolders(r.opt.Session) {
		if folder != r.dir && session.Locked(filepath.Join(folder, session.LockName)) {
			return // the last rank does
		}
	}
	if !session.LauncherHolds(r.opt.Session) {
		_ = os.RemoveAll(r.opt.Session) // else the next run does
	}
}
