package liveness

import (
	"fmt"
	"strings"
	"time"
)

const (
	// The pause before a dead cache is restarted doubles from firstPause to lastPause, and is
	// short again after the cache has lived for lifeProves.
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	lifeProves = 30 * time.Second

	// aloneFor is how long a launcher of ranks may run without ranks before it counts as hung, as Open
	// MPI's mpirun does when a signal ends a rank that is just connecting to it, or MPI lacks shared
	// memory. It may be about to start them: on a machine that is busy, or loads it from slow storage,
	// that takes 5 s and more (at a load of 80 on 2 cores).
	aloneFor = 30 * time.Second

	// The ranks may take readyFactor times StartWithin from when they have met until they are ready:
	// allocating memory and disk space may be slow.
	readyFactor = 10
)

// Options are the bounds of a Keeper and what it may do.
type Options struct {
	Ranks        []int         // ranks whose signs of life the caller receives
	StartWithin  time.Duration // from the start until the ranks have met
	AnswerWithin time.Duration // between two signs of life of a rank
	EndWithin    time.Duration // from End until the cache counts as impossible to kill
	Again        bool          // a dead cache can be restarted
}

// An Event is something that happened to the cache.
type Event interface{ event() }

// The events.
type (
	// Started reports that the process that starts the ranks is running.
	Started struct{}
	// Met reports that the ranks here have joined each other, and show signs of life.
	Met struct{}
	// Ready reports that the ranks accept connections at their doors.
	Ready struct{}
	// Answered reports a sign of life of the rank at this index of Options.Ranks.
	Answered struct{ At int }
	// Ranks reports whether the process that starts the ranks has any at this moment.
	Ranks struct{ Any bool }
	// Ended reports that the process that starts the ranks has ended.
	Ended struct {
		How  string
		Shot bool // by a signal, before it could handle signals
	}
	// Over reports that training has ended, or is about to: no more restarts.
	Over struct{}
	// Tick reports that time has passed.
	Tick struct{}
)

func (Started) event()  {}
func (Met) event()      {}
func (Ready) event()    {}
func (Answered) event() {}
func (Ranks) event()    {}
func (Ended) event()    {}
func (Over) event()     {}
func (Tick) event()     {}

// A Command is an order to the caller.
type Command interface{ command() }

// The commands.
type (
	// Start starts the cache, after killing what is left of an earlier one.
	Start struct{}
	// End kills the cache; Ended follows, if it can be killed.
	End struct{}
	// Forget abandons a cache that cannot be killed: its Ended no longer matters.
	Forget struct{}
	// Say prints the text, once.
	Say struct{ Text string }
	// Fail reports that the first start failed: there will be no cache.
	Fail struct{ Why string }
)

func (Start) command()  {}
func (End) command()    {}
func (Forget) command() {}
func (Say) command()    {}
func (Fail) command()   {}

type phase int

const (
	down     phase = iota // nothing runs
	starting              // the keeper asked for its start
	met
	serving
	ending // the keeper asked for its end
	failed
)

// A Keeper decides when to end and restart a cache, from its first start on.
type Keeper struct {
	opt      Options
	clock    clock
	watch    *Watch
	phase    phase
	since    time.Duration // when the phase began
	why      string        // it is being ended
	alone    bool          // no rank was seen since aloneAt
	aloneAt  time.Duration
	served   bool // it was ready once
	over     bool
	restarts int
	pause    time.Duration
	startAt  time.Duration // in phase down; negative: never
	lived    time.Duration // how long it had served
}

// NewKeeper returns the keeper of a cache whose first start has been commanded.
func NewKeeper(o Options) *Keeper {
	return &Keeper{
		opt: o, clock: clock{most: 2 * Every(o.AnswerWithin)},
		watch: NewWatch(len(o.Ranks), o.AnswerWithin), phase: starting, pause: firstPause,
	}
}

// Restarts returns how often the cache was restarted.
func (k *Keeper) Restarts() int { return k.restarts }

// Serving reports whether the cache is ready.
func (k *Keeper) Serving() bool { return k.phase == serving }

// Wait returns how long the caller may wait before the next Tick.
func (k *Keeper) Wait() time.Duration {
	every := Every(k.opt.AnswerWithin)
	if k.phase == down && k.startAt >= 0 {
		return min(every, max(0, k.startAt-k.clock.ran))
	}
	return every
}

// Step handles an event that happened at now, and returns commands.
func (k *Keeper) Step(now time.Duration, e Event) []Command {
	ran := k.clock.at(now)
	switch e := e.(type) {
	case Started:
		k.enter(starting)
	case Met:
		if k.phase == starting {
			k.enter(met)
			k.watch.restart()
		}
	case Ready:
		if k.phase == starting || k.phase == met {
			k.enter(serving)
			k.served = true
			k.watch.restart()
		}
	case Answered:
		k.watch.Heard(e.At)
	case Ranks:
		if k.alone == e.Any {
			k.alone, k.aloneAt = !e.Any, ran
		}
	case Ended:
		return k.ended(e)
	case Over:
		k.over = true
		if k.phase == down {
			k.startAt = -1
		}
	case Tick:
		return k.tick(now)
	}
	return nil
}

func (k *Keeper) enter(p phase) {
	if k.phase == serving {
		k.lived = k.clock.ran - k.since
	}
	k.phase, k.since = p, k.clock.ran
	if p == starting {
		k.alone, k.aloneAt, k.lived, k.why = false, k.clock.ran, 0, ""
	}
}

func (k *Keeper) tick(now time.Duration) []Command {
	lasted := k.clock.ran - k.since
	lost := k.watch.Tick(now)
	switch k.phase {
	case down:
		if k.startAt >= 0 && k.clock.ran >= k.startAt {
			k.enter(starting)
			return []Command{Start{}}
		}
	case starting:
		if lasted >= k.opt.StartWithin && !k.alone {
			return k.end(fmt.Sprintf("its ranks have not met within %v: MPI hangs in MPI_Init",
				k.opt.StartWithin))
		}
	case met, serving:
		if len(lost) > 0 {
			return k.end(k.silence(lost))
		}
		if most := readyFactor * k.opt.StartWithin; k.phase == met && lasted >= most {
			return k.end(fmt.Sprintf("its ranks have met, but are not ready after %v", most))
		}
	case ending:
		if lasted >= k.opt.EndWithin {
			return append([]Command{Forget{}},
				k.ended(Ended{How: k.why + ", and it cannot be ended"})...)
		}
	}
	if k.alone && k.clock.ran-k.aloneAt >= aloneFor && k.phase != down && k.phase != ending &&
		k.phase != failed {
		return k.end("what starts its ranks hangs, and has none")
	}
	return nil
}

// silence describes which ranks do not respond.
func (k *Keeper) silence(lost []int) string {
	if len(lost) == 1 {
		return fmt.Sprintf("rank %d has not answered for %v: its process is stopped or hangs",
			k.opt.Ranks[lost[0]], k.opt.AnswerWithin)
	}
	names := make([]string, len(lost))
	for i, at := range lost {
		names[i] = fmt.Sprint(k.opt.Ranks[at])
	}
	return fmt.Sprintf("ranks %s have not answered for %v: their processes are stopped or hang",
		strings.Join(names, ", "), k.opt.AnswerWithin)
}

func (k *Keeper) end(why string) []Command {
	k.why = why
	k.enter(ending)
	return []Command{End{}}
}

// ended handles the end of the process, on its own or by command, or the failure to end it.
func (k *Keeper) ended(e Ended) []Command {
	if k.phase == down || k.phase == failed {
		return nil
	}
	how, told := e.How, k.phase == ending
	if told && !strings.HasPrefix(how, k.why) {
		how = k.why
	}
	if !k.served {
		if e.Shot && !told && !k.over {
			k.enter(starting)
			return []Command{Start{}}
		}
		k.enter(failed)
		return []Command{Fail{how}}
	}
	k.enter(down)
	k.startAt = -1
	switch {
	case k.over:
		return nil
	case !k.opt.Again:
		return []Command{Say{fmt.Sprintf(
			"the cache ended (%s); training reads storage from here on", how)}}
	}
	if k.lived >= lifeProves {
		k.pause = firstPause
	}
	k.restarts++
	k.startAt = k.clock.ran + k.pause
	said := fmt.Sprintf(
		"the cache ended (%s); training reads storage until it is there again: start %d in %v", how,
		k.restarts+1, k.pause)
	k.pause = min(2*k.pause, lastPause)
	return []Command{Say{said}}
}
