// Package session manages the folder of a run on a machine: its name, its lock, its owner, and the
// files by which launcher, ranks and trainers find each other.
package session

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/slurm"
)

// A Session is the folder of one run on this machine: <base>/rankpool-<uid>-<job>. It contains a
// folder per rank (r<rank>: lock, door.sock, ready, job) and the Python client, and is locked while
// its launcher lives.
type Session struct {
	Dir  string
	lock *os.File // nil if another process holds the session
}

const (
	// maxSocketPath is the longest path of a Unix socket: sun_path has 108 bytes, the last one 0.
	//
	// Source: Linux, unix(7).
	maxSocketPath = 107

	// staleAfter is the age from which an unlocked session counts as abandoned: far longer than a rank
	// needs from creating its folder to locking it.
	staleAfter = 10 * time.Minute

	// PollEvery is the pause between two polls for a file of a session, which is in this machine's
	// memory.
	PollEvery = 20 * time.Millisecond
)

// Files in the folder of a session or of a rank.
const (
	LockName  = "lock"
	DoorName  = "door.sock"
	ReadyName = "ready"
	MetName   = "met" // the rank has joined the others; it touches the file while it lives
	jobNote   = "job"
	// These contain the number of the training step, and that of the cache's step. If a training has
	// a job name, an @ and the name follow StepName.
	StepName      = "training-step"
	CacheStepName = "cache-step"
)

// RankFolder returns the folder of a rank.
func RankFolder(sessionDir string, rank int) string {
	return filepath.Join(sessionDir, "r"+strconv.Itoa(rank))
}

// Bases returns the folders in which session folders are, unless the user names another.
func Bases() []string {
	return slices.Compact([]string{"/dev/shm", filepath.Clean(os.TempDir()), "/tmp"})
}

// Base returns the folder for session folders: the one that the user named, else the first of Bases
// that can be written to.
func Base(named string) (string, error) {
	candidates := []string{named}
	if named == "" {
		candidates = Bases()
	}
	for _, base := range candidates {
		if info, err := os.Stat(base); err == nil && info.IsDir() &&
			unix.Access(base, unix.W_OK|unix.X_OK) == nil {
			return filepath.Abs(base)
		}
	}
	if named != "" {
		return "", fmt.Errorf("--runtime-dir %s is not a folder that can be written to", named)
	}
	return "", errors.New(
		"neither /dev/shm nor $TMPDIR nor /tmp can be written to: name a folder with --runtime-dir")
}

// Name returns the name of this job's session folder.
//
// The launcher of a batch script uses the job's name, which all nodes know; any other launcher uses
// a unique name.
func Name(ofJob bool, uid int, job slurm.Job, pid int) string {
	if ofJob {
		return fmt.Sprintf("rankpool-%d-slurm%s", uid, job.JobID)
	}
	return fmt.Sprintf("rankpool-%d-pid%d-%08x", uid, pid, rand.Uint32())
}

// Open creates the session folder base/name, empty and locked by this process, after it has removed
// what dead runs of the same user left in base. ranks is the number of rank folders that it will
// hold.
//
// Errors: a socket path that is too long, and a session of that name that is in use.
func Open(base, name string, ranks int) (*Session, error) {
	dir := filepath.Join(base, name)
	if err := CheckSocketPath(filepath.Join(RankFolder(dir, max(0, ranks-1)),
		DoorName)); err != nil {
		return nil, err
	}
	reclaimSessions(base)
	// The folder is renamed to its final name only when it is locked, so that no other launcher
	// mistakes it for a stale one.
	fresh, err := os.MkdirTemp(base, fmt.Sprintf(".rankpool-%d-", os.Getuid()))
	if err != nil {
		return nil, fmt.Errorf("the session folder cannot be made: %w", err)
	}
	lock, err := LockFile(filepath.Join(fresh, LockName))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(fresh))
	}
	if !inUse(dir) {
		_ = os.RemoveAll(dir) // the same job's, before it was requeued
	}
	if err := unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, dir,
		unix.RENAME_NOREPLACE); err != nil {
		lock.Close()
		_ = os.RemoveAll(fresh)
		if unsafe := CheckFolder(dir); unsafe != nil {
			return nil, unsafe
		}
		return nil, fmt.Errorf("the session folder %s is in use by another rankpool: %w", dir, err)
	}
	s := &Session{dir, lock}
	if err := CheckFolder(dir); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// Cleared reports whether somebody has removed the folder, which another one may have replaced.
func (s *Session) Cleared() bool {
	made, err := s.lock.Stat()
	if err != nil {
		return true
	}
	there, err := os.Stat(filepath.Join(s.Dir, LockName))
	return err != nil || !os.SameFile(made, there)
}

// WasCleared explains that a folder of a session is gone, although the run goes on.
func WasCleared(dir string) string {
	return fmt.Sprintf("the session folder %s was removed while the run used it, as systemd does "+
		"when its user logs out of the node (RemoveIPC=yes in logind.conf): name another folder "+
		"with --runtime-dir, see \"rankpool doctor\"", dir)
}

// OfJob returns the session folder of a Slurm job, whose name all its steps know. The folder may
// not exist yet; it is an error if it belongs to another user.
func OfJob(job slurm.Job) (string, error) {
	base, err := Base("")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, Name(true, os.Getuid(), job, os.Getpid()))
	if err := CheckFolder(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return dir, nil
}

// NoteJob writes the Slurm job of a rank, or that there is none, to the rank's folder.
func NoteJob(dir string, job slurm.Job) error {
	return os.WriteFile(filepath.Join(dir, jobNote), []byte(job.JobID), 0o600)
}

// JobOf returns the Slurm job of a session that has ranks here, or "".
func JobOf(sessionDir string) string {
	for _, folder := range RankFolders(sessionDir) {
		if id, err := os.ReadFile(filepath.Join(folder, jobNote)); err == nil {
			return string(id)
		}
	}
	return ""
}

// NoteStep records the step to which this process belongs, for the launcher.
func NoteStep(session, name string, job slurm.Job) {
	if job.InStep() {
		// without it srun ends the step in its own way
		_ = os.WriteFile(filepath.Join(session, name), []byte(job.StepID), 0o600)
	}
}

// TrainingSteps returns the numbers of the training steps that were recorded.
func TrainingSteps(session string) (steps []string) {
	names, _ := os.ReadDir(session) // without it none is known
	for _, name := range names {
		if !strings.HasPrefix(name.Name(), StepName) {
			continue
		}
		if step, err := os.ReadFile(filepath.Join(session, name.Name())); err == nil {
			steps = append(steps, string(step))
		}
	}
	return steps
}

// CheckSocketPath returns an error if path is too long for a socket.
func CheckSocketPath(path string) error {
	if len(path) <= maxSocketPath {
		return nil
	}
	return fmt.Errorf("the socket path %s has %d bytes, and %d are possible: name a shorter "+
		"folder with --runtime-dir",
		path, len(path), maxSocketPath)
}

// Remove removes the folder and gives up its lock.
func (s *Session) Remove() error {
	err := os.RemoveAll(s.Dir)
	// a process that is just ending may have created a file
	for tries := 0; err != nil && tries < 20; tries++ {
		time.Sleep(50 * time.Millisecond)
		err = os.RemoveAll(s.Dir)
	}
	return errors.Join(err, s.lock.Close())
}

// Check returns an error unless dir is a session folder of this user.
func Check(dir string) error {
	if err := CheckFolder(dir); err != nil {
		return err
	}
	if !strings.HasPrefix(filepath.Base(dir), fmt.Sprintf("rankpool-%d-", os.Getuid())) {
		return fmt.Errorf("%s is not the folder of a session", dir)
	}
	return nil
}

// Exists reports whether there is anything at path.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// LockFile opens (or creates) a file and locks it for this process; the kernel unlocks it when the
// process ends. The error is unix.EWOULDBLOCK if another process holds the lock.
func LockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := Lock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// Lock locks an open file as LockFile does, without a change of its blocking mode.
func Lock(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	refused := raw.Control(func(fd uintptr) {
		err = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB)
	})
	return cmp.Or(refused, err)
}

// locks returns the lock files that a session folder may have: the launcher's, and each rank's.
func locks(dir string) []string {
	paths := []string{filepath.Join(dir, LockName)}
	for _, folder := range RankFolders(dir) {
		paths = append(paths, filepath.Join(folder, LockName))
	}
	return paths
}

// inUse reports whether a launcher, a rank or a trainer holds a lock in the session folder.
func inUse(dir string) bool { return slices.ContainsFunc(locks(dir), Locked) }

// Locked reports whether a process holds the lock file at path.
func Locked(path string) bool { return refuses(path, unix.LOCK_EX) }

// LauncherHolds reports whether the launcher of a session, which holds an exclusive lock, runs on
// this node. Trainers share their locks.
func LauncherHolds(dir string) bool { return refuses(filepath.Join(dir, LockName), unix.LOCK_SH) }

// refuses reports whether another process's lock on the file at path excludes one of this kind.
func refuses(path string, kind int) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), kind|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// RankFolders returns the rank folders in a session folder, by rank.
func RankFolders(dir string) []string {
	entries, _ := os.ReadDir(dir) // empty without the folder
	var folders []string
	for _, entry := range entries {
		number, found := strings.CutPrefix(entry.Name(), "r")
		if _, err := strconv.ParseUint(number, 10, 31); found && err == nil && entry.IsDir() {
			folders = append(folders, filepath.Join(dir, entry.Name()))
		}
	}
	slices.SortFunc(folders, func(a, b string) int { // r9 before r10
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return folders
}

// reclaimSessions removes the sessions of this user in base that no process holds. What cannot be
// removed stays.
func reclaimSessions(base string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	prefix := fmt.Sprintf("rankpool-%d-", os.Getuid())
	for _, entry := range entries {
		job, ours := strings.CutPrefix(strings.TrimPrefix(entry.Name(), "."), prefix)
		info, err := entry.Info()
		dir := filepath.Join(base, entry.Name())
		if !ours || err != nil || CheckFolder(dir) != nil {
			continue
		}
		if (time.Since(info.ModTime()) > staleAfter || launcherGone(job)) && !inUse(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// launcherGone reports whether a session's name contains the pid of a process that no longer exists
// ("pid123-…").
func launcherGone(job string) bool {
	number, found := strings.CutPrefix(job, "pid")
	number, _, _ = strings.Cut(number, "-")
	pid, err := strconv.Atoi(number)
	return found && err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}
