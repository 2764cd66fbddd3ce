package runlog

import "time"

// pauseAfter is how long nothing may run before the time is left out: a requeued job may have
// waited for hours.
const pauseAfter = 2 * time.Minute

// A clock turns times into seconds of the run, without the time in which no rank ran.
type clock struct {
	begin, last time.Time
	cut         time.Duration
}

// advance takes a line of the time at, which tells of a span that began at from; fresh: nothing of
// that rank's life is known from before. It returns the seconds that the run paused before it,
// mostly 0.
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

// second is the time t in seconds of the run, at least 0.
func (c *clock) second(t time.Time) float64 {
	return max(0, (t.Sub(c.begin) - c.cut).Seconds())
}
