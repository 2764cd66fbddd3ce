package staging

import "time"

// The rule of the concurrency. Its constants are chosen; TestConcurrency shows what they do on
// simulated storages.
const (
	// DefaultFetchConcurrency is how many requests a Fetcher has under way at first when FetchOptions
	// does not say.
	DefaultFetchConcurrency = 16

	// MaxFetchConcurrency bounds the requests that a Fetcher has under way on its own: each holds a
	// thread.
	MaxFetchConcurrency = 256

	// a window has so many ends of reads, and four a request under way
	windowReads = 64
	// and lasts so long, so that one delay of the scheduler does not decide
	windowTime  = 100 * time.Millisecond
	probeUp     = 1.5
	probeDown   = 0.75
	gainShare   = 0.25 // more requests must bring a quarter of what they would if nobody queued
	lossAllowed = 0.03 // fewer requests may cost so much: no more than windows differ
	latencyRise = 3    // so many times the latency of quiet storage: requests mostly queue
	// a window: storage that became slower for good is quiet again after some 100 windows
	quietDrift   = 1.01
	firstHolding = 4 // windows between a probe in vain and the next; doubled each time
	lastHolding  = 32
)

// A concurrency finds out how many requests to have under way: more while that brings throughput,
// fewer when they only queue.
//
// It looks at windows of reads in which requests were always waiting for the limit; others tell
// nothing. After a window at the limit it tries another limit for one window (a probe): half as
// much again, or a quarter less when the mean latency is three times that of quiet storage. More is
// kept when throughput rises by a quarter of the proportional gain or better, fewer when throughput
// stays within 3 %. A probe in vain is taken back, and the next one waits longer. Throughput counts
// every request as maxGapBytes more than it has, so that small reads count too.
//
// It has no clock of its own and draws nothing; it is not safe for concurrent use.
type concurrency struct {
	limit    int
	max      int // limit stays in [1, max]
	fixed    bool
	kept     int     // the limit to go back to; 0: no probe
	rate     float64 // at the kept limit, cost a second
	quiet    float64 // the least mean latency of a window, in seconds
	holding  int     // windows until the next probe
	patience int     // the next holding

	skip    int // ends of reads that began under the limit before
	began   time.Time
	ends    int
	held    int // ends at which a request waited for the limit
	cost    float64
	seconds float64 // sum of the latencies
}

// newConcurrency starts at a limit; fixed never changes it.
func newConcurrency(limit, most int, fixed bool) concurrency {
	return concurrency{limit: limit, max: most, fixed: fixed, patience: firstHolding}
}

// ended counts a request of sizeBytes bytes that took latency and ended now; held says whether
// others waited only because limit were under way.
func (c *concurrency) ended(now time.Time, latency time.Duration, sizeBytes int64, held bool) {
	if c.fixed {
		return
	}
	if c.skip > 0 {
		c.skip--
		c.began = time.Time{}
		return
	}
	if c.began.IsZero() {
		c.began = now
		return
	}
	c.ends++
	c.cost += float64(sizeBytes + maxGapBytes)
	c.seconds += latency.Seconds()
	if held {
		c.held++
	}
	if took := now.Sub(c.began); c.ends >= max(windowReads, 4*c.limit) && took >= windowTime {
		c.decide(c.cost/took.Seconds(), c.seconds/float64(c.ends), c.held*10 >= c.ends*9)
		c.began, c.ends, c.held, c.cost, c.seconds = now, 0, 0, 0, 0
	}
}

// decide draws the conclusion of a window; full says whether it was full of requests all the time.
func (c *concurrency) decide(rate, latency float64, full bool) {
	if !full {
		if c.kept > 0 {
			c.set(c.kept) // a probe that shows nothing
		}
		return
	}
	if c.kept > 0 && !c.worthIt(rate) {
		c.set(c.kept)
		c.holding, c.patience = c.patience, min(2*c.patience, lastHolding)
		return
	}
	if c.kept > 0 {
		c.holding, c.patience = 0, firstHolding
	}
	c.kept, c.rate = 0, rate
	if c.quiet == 0 || latency < c.quiet {
		c.quiet = latency
	} else {
		c.quiet *= quietDrift
	}
	if c.holding > 0 {
		c.holding--
		return
	}
	probe := min(c.max, max(int(float64(c.limit)*probeUp), c.limit+1))
	if latency > latencyRise*c.quiet {
		probe = max(1, int(float64(c.limit)*probeDown))
	}
	if probe != c.limit {
		before := c.limit
		c.set(probe)
		c.kept = before
	}
}

// worthIt reports whether the probe's throughput is a reason to keep it.
func (c *concurrency) worthIt(rate float64) bool {
	if c.limit < c.kept {
		return rate >= c.rate*(1-lossAllowed)
	}
	return rate >= c.rate*(1+gainShare*(float64(c.limit)/float64(c.kept)-1))
}

// set changes the limit and ends a probe; the requests that are under way by then say nothing about
// it.
func (c *concurrency) set(limit int) {
	c.skip = max(c.limit, limit)
	c.limit, c.kept = limit, 0
}
