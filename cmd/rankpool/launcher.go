package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	pollEvery = 20 * time.Millisecond // between two looks for a file of this machine's memory

	// The pause before a dead cache is started again doubles from firstPause to lastPause, and is short again
	// after the cache has lived for lifeProves.
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	lifeProves = 30 * time.Second

	// endPatience is how long a process that was asked to end may take before it is killed.
	// Source: a third of Slurm's KillWait (30 s by default), which all of a job's end must fit in.
	endPatience = 10 * time.Second

	// termPatience is how long a rank may take to obey SIGTERM after it did not finish by itself.
	termPatience = 2 * time.Second
)

// A launcher starts the cache and the trainers and watches both. One goroutine, locked to its thread, does all of
// it: the children's PDEATHSIG hangs on that thread.
type launcher struct {
	layout
	indexes     *runIndexes // of the data sets, which ranks that are started again get too
	session     string      // its folder
	maxRestarts int         // -1: no limit
	verbose     bool
	progress    *trainProgress
	statusDoor  string // rank 0's, "" where it is on another machine

	exits   chan *process
	signals chan os.Signal
	again   *requeue            // hears of the signals that come before training has ended
	unheard chan syscall.Signal // those that Slurm did not pass on

	running    *process // the cache; nil while it is down
	restarts   int
	pause      time.Duration
	startAgain <-chan time.Time
	clearing   *process // ends ranks of all nodes that outlived their launch, before the next one
	asked      bool     // a signal asked for the end: a dead cache stays dead

	children []*process // the trainers
	failure  int        // the exit code of the first trainer that failed
	killNow  <-chan time.Time
}

// run starts everything, waits for the trainers' end, ends the cache, and returns the trainers' exit code.
func (l *launcher) run() (code int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.pause = firstPause
	if err := l.startCache(); err != nil {
		return exitError, err
	}
	defer l.endCache()
	if err := l.awaitDoors(); err != nil {
		return exitError, err
	}
	defer l.killTrainers() // what trainers left in their process groups
	if err := l.startTrainers(); err != nil {
		return exitError, err
	}
	l.watch()
	l.again.noteMarks(l.folders)
	return l.failure, nil
}

func (l *launcher) say(format string, args ...any) {
	fmt.Fprintf(stderr, "rankpool: "+format+"\n", args...)
}

func (l *launcher) startCache() (err error) {
	if err := l.indexes.putBack(); err != nil {
		return fmt.Errorf("the run's index of its data cannot be put back: %w", err)
	}
	for _, folder := range l.folders {
		if err := os.Remove(filepath.Join(folder, readyName)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	var more []syscall.Signal
	if l.openMPI {
		more = append(more, syscall.SIGTERM) // when all processes get it, the ranks have theirs
	}
	l.running, err = startSheltered("the cache", l.cache, l.exits, more...)
	if err == nil && l.verbose {
		l.say("started the cache: %s", strings.Join(l.cache.args, " "))
	}
	return err
}

// awaitDoors waits until every rank of this machine accepts. Errors: the cache ends before that, a signal.
func (l *launcher) awaitDoors() error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	patience := time.After(30 * time.Second)
	for {
		select {
		case <-l.exits:
			l.running.over = true
			if !l.running.shot() {
				return l.notReady(l.running.how())
			}
			if err := l.startCache(); err != nil {
				return err
			}
		case s := <-l.signals:
			if s := s.(syscall.Signal); endsRun(s) || l.again.wants(s) {
				return signalError{s}
			}
		case <-patience:
			l.say("still waiting for the cache to be ready")
		case <-tick.C:
			if !slices.ContainsFunc(l.folders, func(folder string) bool { return !isReady(folder) }) {
				return nil
			}
		}
	}
}

// notReady returns the error of a cache that ended before it was ready.
func (l *launcher) notReady(how string) error {
	if l.quiet {
		return firstSpeaks()
	}
	err := fmt.Errorf("the cache ended before it was ready (%s), so training was not started", how)
	if l.hint != "" {
		err = fmt.Errorf("%w: %s", err, l.hint)
	}
	return err
}

func isReady(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, readyName))
	return err == nil
}

func endsRun(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP
}

func (l *launcher) startTrainers() error {
	for i, c := range l.trainers {
		p, err := start(fmt.Sprintf("trainer %d", i), c, l.exits)
		if err != nil {
			return err
		}
		l.children = append(l.children, p)
	}
	return nil
}

// watch is the launcher's life while training runs.
func (l *launcher) watch() {
	done := make(chan struct{})
	defer close(done)
	var moving <-chan dataStatus
	if l.statusDoor != "" && l.progress.every > 0 {
		moving = watchStatus(l.statusDoor, done)
	}
	defer l.progress.end()
	for slices.ContainsFunc(l.children, func(p *process) bool { return !p.over }) {
		select {
		case p := <-l.exits:
			l.ended(p)
		case <-l.startAgain:
			l.restartCache()
		case s := <-l.signals:
			l.again.note(s)
			l.pass(s.(syscall.Signal))
		case s := <-l.unheard:
			l.signalTrainers(s)
		case <-l.killNow:
			l.signalTrainers(syscall.SIGKILL)
		case s := <-moving:
			l.progress.update(s)
		}
	}
}

func (l *launcher) ended(p *process) {
	p.over = true
	switch p {
	case l.running:
		l.cacheEnded()
	case l.clearing:
		l.clearing = nil
		l.tryCache()
	default:
		l.trainerEnded(p)
	}
}

// restartCache starts the cache again, after it has ended ranks that outlived their mpirun or srun.
func (l *launcher) restartCache() {
	l.startAgain = nil
	if l.endRanks == nil {
		askToEnd(l.folders)
		l.tryCache()
		return
	}
	var err error
	l.clearing, err = start("the end of the old ranks", command{args: l.endRanks, env: l.cache.env, ours: true}, l.exits)
	if err != nil {
		l.say("%v; training reads storage", err)
	}
}

func (l *launcher) tryCache() {
	if err := l.startCache(); err != nil {
		l.say("%v; training reads storage", err)
	}
}

// cacheEnded plans the next start of the cache.
func (l *launcher) cacheEnded() {
	lived, how := time.Since(l.running.begin), l.running.how()
	l.running.signal(syscall.SIGKILL) // what it left in its process group
	l.running = nil
	if l.asked || l.failure != 0 {
		return
	}
	if why := refusal(l.session); why != "" {
		l.say("the cache cannot come back, so training ends: %s", why)
		l.fail(exitError)
		return
	}
	if !l.restart {
		l.say("the cache ended (%s); training reads storage from here on", how)
		return
	}
	if l.maxRestarts >= 0 && l.restarts >= l.maxRestarts {
		l.say("the cache ended (%s) and was started again %d times; training reads storage from here on", how, l.restarts)
		return
	}
	if lived >= lifeProves {
		l.pause = firstPause
	}
	l.restarts++
	l.say("the cache ended (%s); training reads storage until it is there again: start %d in %v", how, l.restarts+1, l.pause)
	l.startAgain = time.After(l.pause)
	l.pause = min(2*l.pause, lastPause)
}

// trainerEnded notes the first failure; the other trainers would wait for the failed one for ever.
func (l *launcher) trainerEnded(p *process) {
	if p.code() == 0 || l.failure != 0 {
		return
	}
	l.say("%s ended (%s)", p.name, p.how())
	l.fail(p.code())
}

// fail ends training, and with it the run, with an exit code.
func (l *launcher) fail(code int) {
	l.failure = code
	l.signalTrainers(syscall.SIGTERM)
	l.killNow = time.After(endPatience)
}

// pass passes a signal to run on to the trainers.
func (l *launcher) pass(s syscall.Signal) {
	l.asked = l.asked || endsRun(s)
	switch {
	case endsRun(s) && l.step != "":
		go func() { // Slurm may take its time
			if !signalStep(l.step, l.again.job, s) {
				l.unheard <- s
			}
		}()
	case !endsRun(s) && l.agents:
		for _, p := range l.children {
			signalDescendants(p.pid, s)
		}
	default:
		l.signalTrainers(s)
	}
}

func (l *launcher) signalTrainers(s syscall.Signal) {
	for _, p := range l.children {
		if !p.over {
			p.signal(s)
		}
	}
}

func (l *launcher) killTrainers() {
	for _, p := range l.children {
		p.signal(syscall.SIGKILL)
	}
}

// endCache asks the ranks to finish, and after endPatience makes them. A signal shortens the wait.
func (l *launcher) endCache() {
	if l.end != nil {
		l.endNodes()
	}
	if l.running == nil || l.running.over {
		return
	}
	end := syscall.SIGTERM
	if l.openMPI {
		end = syscall.SIGINT // which it is not sheltered from
	}
	if l.end == nil && askToEnd(l.folders) == 0 {
		l.running.signal(end)
	}
	patience := endPatience
	if l.patient && l.failure == 0 && !l.asked {
		patience += othersPatience
	} else if l.patient {
		l.running.signal(syscall.SIGTERM) // the others' training may go on for ever
	}
	if l.awaitEnd(l.running, patience) {
		return
	}
	l.running.signal(end)
	if !l.awaitEnd(l.running, termPatience) {
		l.running.signal(syscall.SIGKILL)
		l.awaitEnd(l.running, endPatience)
	}
}

// endNodes ends the ranks of all nodes by a step of their own.
func (l *launcher) endNodes() {
	p, err := start("the end of the cache", command{args: l.end, env: l.cache.env, ours: true}, l.exits)
	if err != nil {
		l.say("%v", err)
		return
	}
	if !l.awaitEnd(p, 2*endPatience) {
		p.signal(syscall.SIGTERM)
		l.awaitEnd(p, termPatience)
	}
}

// awaitEnd waits for one process's end and reports whether it came within patience and before a signal.
func (l *launcher) awaitEnd(p *process, patience time.Duration) bool {
	late := time.After(patience)
	for !p.over {
		select {
		case other := <-l.exits:
			other.over = true
		case s := <-l.signals:
			if endsRun(s) {
				return false
			}
		case <-late:
			return false
		}
	}
	return true
}

// askToEnd sends SHUTDOWN to the doors of the ranks' folders and returns how many took it.
func askToEnd(folders []string) int {
	took := make([]bool, len(folders))
	var all sync.WaitGroup
	for i, folder := range folders {
		all.Go(func() { took[i] = shutdownDoor(filepath.Join(folder, doorName)) == nil })
	}
	all.Wait()
	n := 0
	for _, t := range took {
		if t {
			n++
		}
	}
	return n
}
