package rank

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
)

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
