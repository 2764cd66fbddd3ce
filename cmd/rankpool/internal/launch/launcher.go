package launch

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/progress"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/door"
	"rankpool/mpicache/liveness"
)

// termPatience is how long a rank that did not finish by itself may take to obey SIGTERM.
const termPatience = 2 * time.Second

// A launcher starts the cache and the trainers and supervises both. One goroutine, locked to its
// thread, does all of it, because the children's PDEATHSIG depends on that thread.
type launcher struct {
	plan       layout // what it starts
	session    *session.Session
	bounds     liveness.Options
	verbose    bool
	progress   *progress.Train
	statusDoor string        // rank 0's, "" where it is on another machine
	greeting   func() string // what is served, when all ranks are there

	exits   chan *process
	signals chan os.Signal
	again   *requeue            // receives signals that arrive before training has ended
	unheard chan syscall.Signal // those that Slurm did not pass on

	watched cacheWatch
	asked   bool // a signal asked to end: do not restart the cache

	children []*process   // the trainers
	failure  int          // the exit code of the first trainer that failed
	doomed   map[int]bool // trainings that are being ended, since one of their trainers has failed
	killNow  <-chan time.Time
}

// run starts everything, waits until the trainers have ended, and ends the cache.
func (l *launcher) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.beginWatch(l.bounds)
	if err := l.startCache(); err != nil {
		return err
	}
	defer l.endCache()
	if err := l.awaitDoors(); err != nil {
		return err
	}
	if l.plan.reports {
		messages.Say("%s", l.greeting())
	}
	defer l.killTrainers() // what trainers left in their process groups
	if err := l.startTrainers(); err != nil {
		return err
	}
	l.watch()
	l.again.noteMarks(l.plan.folders)
	return nil
}

// awaitDoors waits until every rank of this machine accepts. Errors: the cache does not become
// ready, a signal.
func (l *launcher) awaitDoors() error {
	tick := time.NewTicker(session.PollEvery)
	defer tick.Stop()
	patience := time.After(30 * time.Second)
	for !l.watched.keeper.Serving() {
		select {
		case p := <-l.exits:
			l.ended(p)
		case s := <-l.signals:
			if s := s.(syscall.Signal); exit.EndsRun(s) || l.again.wants(s) {
				return exit.SignalError{Signal: s}
			}
		case <-patience:
			messages.Say("still waiting for the cache to be ready")
		case <-tick.C:
			l.lookAtCache()
		}
		if l.watched.failed != "" {
			return l.notReady(l.watched.failed)
		}
	}
	return nil
}

// notReady returns the error of a cache that ended before it was ready.
func (l *launcher) notReady(how string) error {
	if !l.plan.reports {
		return world.FirstSpeaks()
	}
	if how == "exit code 1" && !l.plan.byMpirun && l.plan.hint == "" {
		return &exit.StatusError{Code: exit.Failure} // the rank has said what is wrong
	}
	remedy := cmp.Or(l.plan.hint, "see what \"rankpool doctor\" finds on the nodes")
	return fmt.Errorf("the cache ended before it was ready (%s), so training was not started: %s",
		how, remedy)
}

func (l *launcher) startTrainers() error {
	for i, c := range l.plan.trainers {
		name := fmt.Sprintf("trainer %d", i)
		if each := len(l.plan.trainers) / max(1, c.among); c.among > 1 && each == 1 {
			name = fmt.Sprintf("training %d", c.training)
		} else if c.among > 1 {
			name = fmt.Sprintf("training %d, trainer %d", c.training, i%each)
		}
		p, err := start(name, c, l.exits)
		if err != nil {
			return err
		}
		l.children = append(l.children, p)
	}
	return nil
}

// nextLook returns when to look at the cache next, after an event. An event may bring a look
// forward but never delays it: ranks answer as often as the launcher looks.
func nextLook(due, now time.Time, wait time.Duration) time.Time {
	if next := now.Add(wait); next.Before(due) {
		return next
	}
	return due
}

// watch is the launcher's life while training runs.
func (l *launcher) watch() {
	done := make(chan struct{})
	defer close(done)
	var moving <-chan door.DataStatus
	if l.statusDoor != "" && l.progress.Every > 0 {
		moving = control.Watch(l.statusDoor, done)
	}
	defer l.progress.End()
	due := time.Now().Add(l.watched.keeper.Wait())
	look := time.NewTimer(time.Until(due))
	defer look.Stop()
	for slices.ContainsFunc(l.children, func(p *process) bool { return !p.over }) {
		select {
		case p := <-l.exits:
			l.ended(p)
		case <-look.C:
			l.lookAtCache()
			due = time.Now().Add(l.watched.keeper.Wait())
		case s := <-l.signals:
			l.again.note(s)
			l.pass(s.(syscall.Signal))
		case s := <-l.unheard:
			l.signalTrainers(s)
		case <-l.killNow:
			l.signalDoomed(syscall.SIGKILL)
		case s := <-moving:
			l.progress.Update(s)
		}
		due = nextLook(due, time.Now(), l.watched.keeper.Wait())
		look.Reset(time.Until(due))
	}
}

func (l *launcher) ended(p *process) {
	p.over = true
	switch p {
	case l.watched.running:
		l.cacheEnded()
	case l.watched.clearing:
		l.watched.clearing = nil
		l.tryCache()
	default:
		if slices.Contains(l.children, p) {
			l.trainerEnded(p)
		}
	}
}

// trainerEnded ends a training when one of its trainers fails: the others would wait for it
// forever.
func (l *launcher) trainerEnded(p *process) {
	if p.code() == 0 || l.doomed[p.training] {
		return
	}
	l.doom(p.code(), p.training)
	others := ""
	if l.goesOn() {
		others = "; the other trainings continue"
	}
	messages.Say("%s ended (%s)%s", p.name, p.how(), others)
	l.endDoomed()
}

// fail ends all trainings, and with them the run, with an exit code.
func (l *launcher) fail(code int) {
	for _, p := range l.children {
		l.doom(code, p.training)
	}
	l.endDoomed()
}

// doom marks a training as one to end. The run's exit code is that of the first failure.
func (l *launcher) doom(code, training int) {
	if l.failure == 0 {
		l.failure = code
	}
	l.doomed[training] = true
}

// goesOn reports whether any training continues.
func (l *launcher) goesOn() bool {
	return slices.ContainsFunc(l.children, func(p *process) bool {
		return !p.over && !l.doomed[p.training]
	})
}

func (l *launcher) endDoomed() {
	if !l.goesOn() {
		l.drive(liveness.Over{})
	}
	l.signalDoomed(syscall.SIGTERM)
	l.killNow = time.After(exit.Patience)
}

func (l *launcher) signalDoomed(s syscall.Signal) {
	for _, p := range l.children {
		if !p.over && l.doomed[p.training] {
			p.signal(s)
		}
	}
}

// pass forwards a signal that run received to the trainers.
func (l *launcher) pass(s syscall.Signal) {
	if exit.EndsRun(s) {
		l.asked = true
		l.drive(liveness.Over{})
	}
	switch {
	case exit.EndsRun(s) && l.plan.step != "":
		go func() { // Slurm may be slow
			if !signalSteps(l.plan.step, len(l.plan.trainers), l.again.job, s) {
				l.unheard <- s
			}
		}()
	case !exit.EndsRun(s) && l.plan.agents:
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

// endCache asks the ranks to finish, and ends them if they have not after exit.Patience; if other
// launchers may still be training, it waits longer. A signal shortens the wait.
func (l *launcher) endCache() {
	if l.plan.end != nil {
		l.endNodes()
	}
	if l.watched.running == nil || l.watched.running.over {
		return
	}
	patience, others := exit.Patience, rank.OthersPatience
	if l.plan.end == nil && control.EndAll(l.plan.folders) == 0 {
		l.watched.running.signal(l.watched.running.end)
		if l.watched.keeper.Serving() && control.EndAll(l.plan.folders) == 0 {
			// No rank answers: all hang, or are about to end.
			patience, others = termPatience, l.bounds.AnswerWithin
		}
	}
	if l.plan.patient && l.failure == 0 && !l.asked {
		patience += others
	} else if l.plan.patient {
		l.watched.running.signal(syscall.SIGTERM) // the others' training may continue forever
	}
	if l.awaitEnd(l.watched.running, patience) {
		return
	}
	l.watched.running.signal(l.watched.running.end)
	if !l.awaitEnd(l.watched.running, termPatience) {
		l.killCache()
		l.awaitEnd(l.watched.running, exit.Patience)
	}
}

// endNodes ends the ranks of all nodes with a separate step.
func (l *launcher) endNodes() {
	p, err := start("the end of the cache",
		command{args: l.plan.end, env: l.plan.cache.env, ours: true}, l.exits)
	if err != nil {
		messages.Say("%v", err)
		return
	}
	if !l.awaitEnd(p, 2*exit.Patience) {
		p.signal(syscall.SIGTERM)
		l.awaitEnd(p, termPatience)
	}
}

// awaitEnd waits until a process ends, and reports whether it did within patience and before a
// signal.
func (l *launcher) awaitEnd(p *process, patience time.Duration) bool {
	late := time.After(patience)
	for !p.over {
		select {
		case other := <-l.exits:
			other.over = true
		case s := <-l.signals:
			if exit.EndsRun(s) {
				return false
			}
		case <-late:
			return false
		}
	}
	return true
}
