// Package liveness decides who has been silent for too long, and when to end and restart a cache.
// It is pure: callers report what happened and when, and execute its commands. It has no clock,
// goroutine, file or socket.
//
// Times are those of a monotonic clock such as CLOCK_MONOTONIC, from any origin. What counts is the
// time that the caller itself was running: if it receives nothing because all processes of the job
// were stopped (SIGSTOP, "scontrol suspend", a suspended machine), no peer counts as silent.
package liveness

import "time"

// Every returns the interval at which a Watch or a Keeper with this bound must be ticked, and at
// which whatever it watches must show a sign of life: often enough that a few signs may be late.
func Every(bound time.Duration) time.Duration {
	return min(max(bound/24, 10*time.Millisecond), time.Second)
}

// A clock measures the time in which this process ran. Between two readings it counts no more than
// the field most: the process was stopped for the rest.
type clock struct {
	most time.Duration
	last time.Duration // the newest reading
	ran  time.Duration
	set  bool
}

// at adds a reading and returns how long the process has run. A reading before an earlier one
// counts as the earlier one.
func (c *clock) at(now time.Duration) time.Duration {
	if c.set {
		c.ran += min(max(now-c.last, 0), c.most)
	}
	c.last, c.set = max(now, c.last), true
	return c.ran
}

// A Watch finds out which of several peers have been silent for too long.
type Watch struct {
	bound time.Duration
	clock clock
	heard []time.Duration // by peer: the time of its last sign of life
	news  []bool          // since the last Tick
	lost  []bool
}

// NewWatch returns a watch over n peers, as if all had just been heard. Tick must be
// called every Every(bound).
func NewWatch(peers int, bound time.Duration) *Watch {
	return &Watch{
		bound: bound, clock: clock{most: 2 * Every(bound)},
		heard: make([]time.Duration, peers), news: make([]bool, peers), lost: make([]bool, peers),
	}
}

// Heard records a sign of life of a peer.
func (w *Watch) Heard(peer int) { w.news[peer], w.lost[peer] = true, false }

// Tick sets the time, and returns the peers that have now been silent for the bound. A peer is
// returned once, until it is heard from again.
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

// Lost reports whether a peer has been silent for too long, and has not been heard from since.
func (w *Watch) Lost(peer int) bool { return w.lost[peer] }

// restart resets the silence of all peers.
func (w *Watch) restart() {
	for peer := range w.heard {
		w.Heard(peer)
	}
}
