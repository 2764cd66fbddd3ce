package storage

import (
	"sync"
	"time"
)

// burstSeconds is how much of a limit may be used at once after a pause: short enough that no
// server notices, long enough that a late timer loses nothing.
const burstSeconds = 0.1

// A RateLimit bounds how fast its users, such as Fetchers, read: bytes and opened files per second.
// Over any time t they read at most rate·t, plus a tenth of a second's worth, plus one request; the
// same holds for opens. A job's limit is divided evenly over its ranks, and no rank gets what
// another does not use. It is safe for concurrent use.
type RateLimit struct {
	mu           sync.Mutex
	bytes, opens bucket
}

// NewRateLimit returns a limit of bytes and opens per second; 0 or less is unlimited.
func NewRateLimit(bytesPerSecond, opensPerSecond float64) *RateLimit {
	return &RateLimit{bytes: newBucket(bytesPerSecond), opens: newBucket(opensPerSecond)}
}

// Take consumes a request's bytes and opens at time now and returns 0, or consumes nothing and
// returns how long to wait. A nil limit is unlimited.
func (l *RateLimit) Take(now time.Time, bytes int64, opens int) time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := l.bytes.wait(now)
	if opens > 0 {
		wait = max(wait, l.opens.wait(now))
	}
	if wait == 0 {
		l.bytes.take(float64(bytes))
		l.opens.take(float64(opens))
	}
	return wait
}

// A bucket holds tokens: rate more per second, burst at most. A request that finds the bucket
// without debt takes all it needs, even more than there is, and the next one waits until the debt
// is paid: so a request larger than burst needs no special rule.
type bucket struct {
	rate, burst float64
	tokens      float64
	at          time.Time // time of the last update
}

func newBucket(rate float64) bucket {
	burst := max(0, rate) * burstSeconds
	return bucket{rate: rate, burst: burst, tokens: burst}
}

// wait fills the bucket up to now, and returns how long it will be in debt.
func (b *bucket) wait(now time.Time) time.Duration {
	if b.rate <= 0 {
		return 0
	}
	if !b.at.IsZero() {
		b.tokens = min(b.burst, b.tokens+b.rate*max(0, now.Sub(b.at).Seconds()))
	}
	b.at = now
	missing := -b.tokens / b.rate * float64(time.Second)
	if missing < 1 {
		return 0
	}
	return time.Duration(missing) + 1
}

func (b *bucket) take(n float64) {
	if b.rate > 0 {
		b.tokens -= n
	}
}
