package staging

import (
	"sync"
	"time"
)

// burstSeconds is how much of a limit may be taken at once after a pause: short enough that no
// server notices, long enough that a late timer loses nothing.
const burstSeconds = 0.1

// A RateLimit bounds how fast those that share it read, such as Fetchers: bytes and opened files a
// second. Over any time t they read at most rate·t, a tenth of a second's worth, and one request,
// and so for opens. A job's limit is divided evenly over its ranks, and what one rank does not use
// no other rank gets. It is safe for concurrent use.
type RateLimit struct {
	mu           sync.Mutex
	bytes, opens bucket
}

// NewRateLimit returns a limit of so many bytes and opens a second; 0 or less is none.
func NewRateLimit(bytesPerSecond, opensPerSecond float64) *RateLimit {
	return &RateLimit{bytes: newBucket(bytesPerSecond), opens: newBucket(opensPerSecond)}
}

// Take takes a request's bytes and opens at time now and returns 0, or takes nothing and returns
// for how long the limit is used up. A nil limit is none.
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

// A bucket holds tokens: rate more a second, burst at most. Whoever finds none missing takes as
// many as are needed, more than there are if it must be, and the next one waits until that is paid:
// a request larger than burst needs no rule of its own.
type bucket struct {
	rate, burst float64
	tokens      float64
	at          time.Time // when there were so many
}

func newBucket(rate float64) bucket {
	burst := max(0, rate) * burstSeconds
	return bucket{rate: rate, burst: burst, tokens: burst}
}

// wait fills the bucket up to now, and returns how long tokens are still missing.
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
