package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
	"rankpool/mpicache/liveness"
)

// A cacheWatch is the launcher's part that starts the cache, looks after it, and ends it, as a liveness.Keeper decides.
type cacheWatch struct {
	keeper   *liveness.Keeper
	begun    time.Time
	running  *process // the cache; nil while it is down
	clearing *process // ends ranks of all nodes that outlived their launch, before the next one
	answers  chan int // places in folders, of ranks that have answered
	done     chan struct{}
	failed   string     // why there will be no cache
	seats    []keptFile // of the ranks' folders: who trains
}

// A keptFile is a file of a session that the launcher knows the content of, so that it can put it back.
type keptFile struct {
	path string
	seen os.FileInfo // nil: it was never there
	text []byte
}

// look reads the file if it has changed. One that is gone, or cannot be read, is known as it was.
func (f *keptFile) look() {
	info, err := os.Stat(f.path)
	if err != nil || f.seen != nil && os.SameFile(info, f.seen) && info.ModTime().Equal(f.seen.ModTime()) {
		return // a rank replaces the file, and never writes to it
	}
	if text, err := os.ReadFile(f.path); err == nil {
		f.seen, f.text = info, text
	}
}

// putBack writes the file, and makes its folder, if it is not there.
func (f *keptFile) putBack() error {
	if f.seen == nil || session.Exists(f.path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(f.path, f.text, 0o600)
}

// beginWatch makes the keeper of a cache that is being started, and has its ranks here asked for signs of life.
func (l *launcher) beginWatch(o liveness.Options) {
	o.EndWithin, o.Again = exit.Patience, l.restart
	if l.restart { // else a rank that hangs is let be: its end might be the end of training
		o.Ranks = l.ranksHere()
	}
	l.keeper, l.begun = liveness.NewKeeper(o), time.Now()
	l.answers, l.done = make(chan int, len(l.folders)), make(chan struct{})
	for _, folder := range l.folders {
		l.seats = append(l.seats, keptFile{path: filepath.Join(folder, mpicache.KeptName)})
	}
	for at := range o.Ranks {
		go askForLife(filepath.Join(l.folders[at], session.DoorName), at, liveness.Every(o.AnswerWithin), l.answers, l.done)
	}
}

func (l *launcher) endWatch() { close(l.done) }

// ranksHere returns the numbers of the ranks whose folders are here.
func (l *launcher) ranksHere() []int {
	ranks := make([]int, len(l.folders))
	for i, folder := range l.folders {
		ranks[i], _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "r")) // rankFolder made it
	}
	return ranks
}

// askForLife greets at the door at path again and again until done is closed, and sends at when it is greeted back. A rank
// greets whatever its storage, its plans and its disks are doing: nothing but its process is needed for that.
func askForLife(path string, at int, every time.Duration, answers chan<- int, done <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		c, err := control.Dial(path)
		if err != nil {
			continue
		}
		_ = c.Close() // it has answered
		select {
		case answers <- at:
		case <-done:
			return
		}
	}
}

// tell tells the keeper what happened, and does what it says.
func (l *launcher) tell(e liveness.Event) {
	for _, c := range l.keeper.Step(time.Since(l.begun), e) {
		switch c := c.(type) {
		case liveness.Start:
			l.restartCache()
		case liveness.End:
			l.killCache()
		case liveness.Forget:
			l.running, l.clearing = nil, nil
		case liveness.Say:
			l.say("%s", c.Text)
		case liveness.Fail:
			l.failed = c.Why
		}
	}
}

// lookAtCache tells the keeper what there is to see of the cache, and the time.
func (l *launcher) lookAtCache() {
	for i := range l.seats {
		l.seats[i].look()
	}
	if l.running != nil && !l.keeper.Serving() {
		if l.allHave(session.MetName) {
			l.tell(liveness.Met{})
		}
		if l.allHave(session.ReadyName) {
			l.tell(liveness.Ready{})
		}
	}
	if l.running != nil && l.byMpirun {
		l.tell(liveness.Ranks{Any: hasChildren(l.running.pid)})
	}
	l.tell(liveness.Tick{})
}

// allHave reports whether every rank of this machine has a file in its folder.
func (l *launcher) allHave(name string) bool {
	return !slices.ContainsFunc(l.folders, func(folder string) bool {
		_, err := os.Stat(filepath.Join(folder, name))
		return err != nil
	})
}

func (l *launcher) startCache() (err error) {
	if err := l.indexes.PutBack(); err != nil {
		return fmt.Errorf("the run's index of its data cannot be put back: %w", err)
	}
	if l.keeper.Restarts() > 0 { // training processes may be started again too, and import it
		if _, err := ExtractClient(l.session, os.Getenv); err != nil {
			l.say("%v", err)
		}
	}
	for i := range l.seats {
		l.seats[i].look()
		if err := l.seats[i].putBack(); err != nil {
			l.say("who trains is not kept: %v", err)
		}
	}
	for _, folder := range l.folders {
		for _, name := range []string{session.MetName, session.ReadyName} {
			if err := os.Remove(filepath.Join(folder, name)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	var more []syscall.Signal
	if l.openMPI {
		more = append(more, syscall.SIGTERM) // when all processes get it, the ranks have theirs
	}
	l.running, err = startSheltered("the cache", l.cache, l.exits, more...)
	if err != nil {
		return err
	}
	l.tell(liveness.Started{})
	if l.verbose {
		l.say("started the cache: %s", strings.Join(l.cache.args, " "))
	}
	return nil
}

// restartCache starts the cache again, after it has ended ranks that outlived their mpirun or srun.
func (l *launcher) restartCache() {
	if l.endRanks == nil {
		control.EndAll(l.folders)
		l.tryCache()
		return
	}
	l.goAround()
	var err error
	l.clearing, err = start("the end of the old ranks", command{args: l.endRanks, env: l.cache.env, ours: true}, l.exits)
	if err != nil {
		l.tell(liveness.Ended{How: err.Error()})
	}
}

func (l *launcher) tryCache() {
	if err := l.startCache(); err != nil {
		l.tell(liveness.Ended{How: err.Error()})
	}
}

// cacheEnded tells the keeper that the cache has ended.
func (l *launcher) cacheEnded() {
	p := l.running
	l.running = nil
	p.signal(syscall.SIGKILL) // what it left in its process group
	if why := session.Refusal(l.session); why != "" && len(l.children) > 0 && !l.asked && l.failure == 0 {
		l.say("the cache cannot come back, so training ends: %s", why)
		l.fail(exit.Failure)
	}
	l.tell(liveness.Ended{How: p.how(), Shot: p.shot()})
}

// killCache ends the cache by force, with the ranks that its mpirun has started here: one that is stopped hears nothing else.
func (l *launcher) killCache() {
	if l.step != "" {
		go killStep(l.step, l.again.job) // Slurm may take its time
	}
	for _, p := range []*process{l.running, l.clearing} {
		if p == nil || p.over {
			continue
		}
		signalDescendants(p.pid, syscall.SIGKILL)
		p.signal(syscall.SIGKILL)
	}
}

// What MPI needs at the least of what is often short in containers: some MiB of shared memory a rank, and descriptors.
const (
	leastSharedMemory = 64 << 20
	leastDescriptors  = 256
)

// shortages says what is short here that MPI may have failed for; "" where nothing is.
func shortages() string {
	var said []string
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) == nil {
		if free := int64(fs.Bavail) * fs.Bsize; free < leastSharedMemory {
			said = append(said, fmt.Sprintf("/dev/shm has %s free, and MPI and the ranks need more: make it larger (a container's by --shm-size)", memory.Text(free)))
		}
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < leastDescriptors {
		said = append(said, fmt.Sprintf("this shell lets a process open %d files, and MPI and the ranks need more: say \"ulimit -n 4096\"", limit.Cur))
	}
	return strings.Join(said, "; ")
}
