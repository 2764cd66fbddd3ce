package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache/liveness"
)

// A cacheWatch is the part of the launcher that starts, monitors and ends the cache, driven by a
// liveness.Keeper.
type cacheWatch struct {
	keeper   *liveness.Keeper
	begun    time.Time
	running  *process    // the cache; nil while it is down
	clearing *process    // ends ranks of all nodes that outlived their launch, before the next one
	touched  []time.Time // by folder: when its rank last showed that it lives
	failed   string      // why the cache will not run any more
}

// beginWatch creates the keeper of a cache that is about to start.
func (l *launcher) beginWatch(o liveness.Options) {
	o.EndWithin, o.Again = exit.Patience, l.plan.restart
	if l.plan.restart { // otherwise leave a hanging rank alone: ending it might end training
		o.Ranks = l.ranksHere()
	}
	l.watched.keeper, l.watched.begun = liveness.NewKeeper(o), time.Now()
	l.watched.touched = make([]time.Time, len(o.Ranks))
}

// ranksHere returns the numbers of the ranks that have a folder on this machine.
func (l *launcher) ranksHere() []int {
	ranks := make([]int, len(l.plan.folders))
	for i, folder := range l.plan.folders {
		// session.RankFolder formed the name
		ranks[i], _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "r"))
	}
	return ranks
}

// drive passes an event to the keeper, and executes its commands.
func (l *launcher) drive(e liveness.Event) {
	for _, c := range l.watched.keeper.Step(time.Since(l.watched.begun), e) {
		switch c := c.(type) {
		case liveness.Start:
			l.restartCache()
		case liveness.End:
			l.killCache()
		case liveness.Forget:
			l.watched.running, l.watched.clearing = nil, nil
		case liveness.Say:
			messages.Say("%s", c.Text)
		case liveness.Fail:
			l.watched.failed = c.Why
		}
	}
}

// lookAtCache reports the state of the cache and the time to the keeper.
func (l *launcher) lookAtCache() {
	if l.watched.running != nil && !l.watched.keeper.Serving() {
		if l.allHave(session.MetName) {
			l.drive(liveness.Met{})
		}
		if l.allHave(session.ReadyName) {
			l.drive(liveness.Ready{})
		}
	}
	for at, before := range l.watched.touched {
		met, err := os.Stat(filepath.Join(l.plan.folders[at], session.MetName))
		if err == nil && !met.ModTime().Equal(before) {
			l.watched.touched[at] = met.ModTime()
			l.drive(liveness.Answered{At: at})
		}
	}
	if l.watched.running != nil && l.plan.byMpirun {
		l.drive(liveness.Ranks{Any: hasChildren(l.watched.running.pid)})
	}
	l.drive(liveness.Tick{})
}

// allHave reports whether every rank of this machine has a file in its folder.
func (l *launcher) allHave(name string) bool {
	return !slices.ContainsFunc(l.plan.folders,
		func(folder string) bool { return !session.Exists(filepath.Join(folder, name)) })
}

func (l *launcher) startCache() (err error) {
	for _, folder := range l.plan.folders {
		for _, name := range []string{session.MetName, session.ReadyName} {
			if err := os.Remove(filepath.Join(folder, name)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	l.watched.running, err = start("the cache", l.plan.cache, l.exits)
	if err != nil {
		return err
	}
	l.drive(liveness.Started{})
	if l.verbose {
		messages.Say("started the cache: %s", strings.Join(l.plan.cache.args, " "))
	}
	return nil
}

// restartCache ends the ranks that outlived their mpirun or srun, and starts the cache again.
func (l *launcher) restartCache() {
	if l.session.Cleared() {
		l.giveUp(session.WasCleared(l.session.Dir))
		return
	}
	if l.plan.endRanks == nil {
		control.EndAll(l.plan.folders)
		l.tryCache()
		return
	}
	if why := lostNodes(l.again.job); why != "" {
		l.giveUp(why)
		return
	}
	var err error
	l.watched.clearing, err = start("the end of the old ranks",
		command{args: l.plan.endRanks, env: l.plan.cache.env, ours: true}, l.exits)
	if err != nil {
		l.drive(liveness.Ended{How: err.Error()})
	}
}

func (l *launcher) tryCache() {
	if err := l.startCache(); err != nil {
		l.drive(liveness.Ended{How: err.Error()})
	}
}

// cacheEnded reports the end of the cache to the keeper.
func (l *launcher) cacheEnded() {
	p := l.watched.running
	l.watched.running = nil
	p.signal(syscall.SIGKILL) // whatever is left of its process group
	if why := session.Refusal(l.session.Dir); why != "" && l.goesOn() && !l.asked {
		l.giveUp(why)
	}
	// the signals of sbatch --signal kill a program that is still loading
	l.drive(liveness.Ended{How: p.how(), Shot: diedOfUserSignal(p.code())})
}

// giveUp ends training, since the cache cannot be restarted.
func (l *launcher) giveUp(why string) {
	messages.Say("the cache cannot be restarted, so training ends: %s", why)
	l.watched.failed = why
	l.fail(exit.Failure)
}

// killCache kills the cache, including the ranks that its mpirun has started here: a stopped
// process reacts to nothing but SIGKILL.
func (l *launcher) killCache() {
	if l.plan.step != "" {
		go killStep(l.plan.step, l.again.job) // Slurm may be slow
	}
	for _, p := range []*process{l.watched.running, l.watched.clearing} {
		if p == nil || p.over {
			continue
		}
		signalDescendants(p.pid, syscall.SIGKILL)
		p.signal(syscall.SIGKILL)
	}
}
