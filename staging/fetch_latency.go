package staging

import (
	"math/bits"
	"time"
)

const (
	latencyBuckets  = 128     // four a power of two microseconds
	latencyMemory   = 1 << 11 // when so many are counted all counts are halved, so that the old ones are forgotten
	latenciesNeeded = 100     // before a percentile is believed
)

// latencies counts how long requests took, in steps of a fifth, and forgets slowly.
type latencies struct {
	counts [latencyBuckets]int
	total  int
}

func (l *latencies) add(d time.Duration) {
	l.counts[latencyBucket(d)]++
	l.total++
	if l.total < latencyMemory {
		return
	}
	l.total = 0
	for i := range l.counts {
		l.counts[i] /= 2
		l.total += l.counts[i]
	}
}

// percentile returns a time that p of 100 requests did not exceed, rounded up by a quarter at most; false while too
// few are known.
func (l *latencies) percentile(p int) (time.Duration, bool) {
	if l.total < latenciesNeeded {
		return 0, false
	}
	left := l.total * p / 100
	for i, n := range l.counts {
		if left -= n; left <= 0 {
			return latencyBound(i), true
		}
	}
	return latencyBound(latencyBuckets - 1), true
}

// latencyBucket returns the bucket of d: its power of two in microseconds, and its two bits below that.
func latencyBucket(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0)) + 4
	power := bits.Len64(us) - 1
	return min(4*(power-2)+int(us>>(power-2)&3), latencyBuckets-1)
}

// latencyBound returns the end of a bucket.
func latencyBound(bucket int) time.Duration {
	us := uint64(4+bucket%4+1)<<(bucket/4) - 4
	return time.Duration(us) * time.Microsecond
}
