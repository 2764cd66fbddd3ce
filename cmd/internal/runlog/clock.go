package runlog

import "time"

// pauseAfter is how long nothing must run for the time to be omitted: a requeued job may have
// waited for hours.
const pauseAfter = 2 * time.Minute

// A clock converts times to seconds of the run, without the time in which no rank ran.
type clock struct {
	begin, last time.Time
	cut         time.Duration
}

// advance handles a line at the time at, which covers a span that began at from. fresh means that
// nothing earlier of that rank's process is known. It returns the seconds for which the run paused
// before the line, usually 0.
func (c *clock) advance(from, at time.Time, fresh bool) (pause float64) {
	if c.begin.IsZero() {
		c.begin, c.last = from, from
	}
	if gap := from.Sub(c.last); fresh && gap > pauseAfter {
		c.cut += gap
		pause = gap.Seconds()
		c.last = from
	}
	if at.After(c.last) {
		c.last = at
	}
	return pause
}

// second returns the time t in seconds of the run, at least 0.
func (c *clock) second(t time.Time) float64 {
	return max(0, (t.Sub(c.begin) - c.cut).Seconds())
}
