// Package liveness decides who has been silent for too long, and when a cache is ended and started again. It is pure:
// callers tell it what happened and when, and do what it says. It has no clock, goroutine, file or socket.
//
// Times are those of a clock that only goes on, such as CLOCK_MONOTONIC, since any moment. What counts is the time that
// the caller itself was running: where it hears nothing because all processes of the job were stopped (SIGSTOP,
// "scontrol suspend", a machine that slept), nobody was silent.
package liveness

import "time"

// Every is how often a Watch or a Keeper of a bound wants to be told the time, and how often who is watched must show a
// sign of life: often enough that a few of them may be late.
func Every(bound time.Duration) time.Duration {
	return min(max(bound/24, 10*time.Millisecond), time.Second)
}

// A clock measures the time in which this process ran. Of the time between two readings it takes most at most: it was
// stopped for the rest.
type clock struct {
	most time.Duration
	last time.Duration // the newest reading
	ran  time.Duration
	set  bool
}

// at takes a reading and returns for how long the process ran. A reading before an earlier one counts as that one.
func (c *clock) at(now time.Duration) time.Duration {
	if c.set {
		c.ran += min(max(now-c.last, 0), c.most)
	}
	c.last, c.set = max(now, c.last), true
	return c.ran
}

// A Watch says which of several peers have been silent for too long.
type Watch struct {
	bound time.Duration
	clock clock
	heard []time.Duration // by peer: when it was heard of last, by the clock
	news  []bool          // since the last Tick
	lost  []bool
}

// NewWatch returns a watch over so many peers, none of which has been silent yet. Tick must be called every Every(bound).
func NewWatch(peers int, bound time.Duration) *Watch {
	return &Watch{
		bound: bound, clock: clock{most: 2 * Every(bound)},
		heard: make([]time.Duration, peers), news: make([]bool, peers), lost: make([]bool, peers),
	}
}

// Heard notes a sign of life of a peer.
func (w *Watch) Heard(peer int) { w.news[peer], w.lost[peer] = true, false }

// Tick tells the time, and returns the peers that have now been silent for the bound. A peer is returned once, until it
// is heard of again.
func (w *Watch) Tick(now time.Duration) (lost []int) {
	ran := w.clock.at(now)
	for peer := range w.heard {
		if w.news[peer] {
			w.heard[peer], w.news[peer] = ran, false
		}
		if !w.lost[peer] && ran-w.heard[peer] >= w.bound {
			w.lost[peer] = true
			lost = append(lost, peer)
		}
	}
	return lost
}

// Lost reports whether a peer has been silent for too long, and was not heard of since.
func (w *Watch) Lost(peer int) bool { return w.lost[peer] }

// restart forgets all silence.
func (w *Watch) restart() {
	for peer := range w.heard {
		w.Heard(peer)
	}
}
