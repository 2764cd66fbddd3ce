package storage

import "time"

// The parameters of the concurrency control. They are chosen; TestConcurrency shows their effect on
// simulated storage.
const (
	// DefaultFetchConcurrency is how many requests a Fetcher has in flight at first by default, where
	// samples are not large.
	DefaultFetchConcurrency = 16

	// If samples are large, fewer requests with firstBytes in flight in all, but at least leastFirst.
	firstBytes = 32 << 20
	leastFirst = 4

	// MaxFetchConcurrency bounds the requests that a Fetcher has in flight if it chooses their number:
	// each holds a thread.
	MaxFetchConcurrency = 256

	// Ends of reads in a window, and at least four per request in flight.
	windowReads = 64
	// Minimum length of a window, so that one delay of the scheduler does not decide.
	windowTime  = 100 * time.Millisecond
	probeUp     = 1.5
	probeDown   = 0.75
	gainShare   = 0.25 // more requests must bring a quarter of the proportional gain
	lossAllowed = 0.03 // fewer requests may cost this much: no more than windows differ
	latencyRise = 3    // this many times the latency of quiet storage: requests mostly queue
	// Per window: after some 100 windows, storage that became slower for good counts as quiet.
	quietDrift   = 1.01
	firstHolding = 4 // windows between a failed probe and the next; doubled each time
	lastHolding  = 32
)

// A concurrency chooses how many requests to have in flight: more while that increases throughput,
// fewer when they only queue.
//
// It observes windows of reads in which requests were always waiting for the limit, and ignores
// others. After a window at the limit it tries another limit for one window (a probe): half as much
// again, or a quarter less if the mean latency is three times that of quiet storage. It keeps a
// higher limit if throughput rises by at least a quarter of the proportional gain, a lower one if
// throughput stays within 3 %. After a failed probe it restores the limit, and waits longer before
// the next. Each request counts as maxGapBytes more than its size, so that small reads count too.
//
// It has no clock of its own and draws no random numbers; it is not safe for concurrent use.
type concurrency struct {
	limit    int
	max      int // limit stays in [1, max]
	fixed    bool
	kept     int     // the limit to restore; 0: no probe
	rate     float64 // at the kept limit, cost per second
	quiet    float64 // the least mean latency of a window, in seconds
	holding  int     // windows until the next probe
	patience int     // the next holding

	skip    int // ends of reads that began under the previous limit
	began   time.Time
	ends    int
	held    int // ends at which a request was waiting for the limit
	cost    float64
	seconds float64 // sum of the latencies
}

// firstConcurrency returns how many requests to have in flight at first. Requests share the
// bandwidth of storage: with more large ones, those that training waits for take longer, and all
// later batches are as late as the first.
func firstConcurrency(samples int, totalBytes int64) int {
	if totalBytes == 0 {
		return DefaultFetchConcurrency
	}
	fit := firstBytes * int64(samples) / totalBytes
	return int(min(DefaultFetchConcurrency, max(leastFirst, fit)))
}

// newConcurrency starts at limit; if fixed, it never changes it.
func newConcurrency(limit, most int, fixed bool) concurrency {
	return concurrency{limit: limit, max: most, fixed: fixed, patience: firstHolding}
}

// ended counts a request of sizeBytes bytes that took latency and ended now; held reports whether
// others waited only because as many requests as limit were in flight.
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

// decide evaluates a window; full reports whether it was full of requests all the time.
func (c *concurrency) decide(rate, latency float64, full bool) {
	if !full {
		if c.kept > 0 {
			c.set(c.kept) // an inconclusive probe
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

// worthIt reports whether the probe's throughput justifies keeping its limit.
func (c *concurrency) worthIt(rate float64) bool {
	if c.limit < c.kept {
		return rate >= c.rate*(1-lossAllowed)
	}
	return rate >= c.rate*(1+gainShare*(float64(c.limit)/float64(c.kept)-1))
}

// set changes the limit and ends a probe; it ignores the requests that are in flight by then.
func (c *concurrency) set(limit int) {
	c.skip = max(c.limit, limit)
	c.limit, c.kept = limit, 0
}
