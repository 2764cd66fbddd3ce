package rank

import (
	"math"
	"testing"
	"time"
)

// TestRankTimeout checks that ranks wait for each other longer than the launcher does, and that the
// longest possible time does not overflow.
func TestRankTimeout(t *testing.T) {
	for _, c := range []struct{ given, want time.Duration }{
		{time.Second, 1125 * time.Millisecond},
		{2 * time.Minute, 135 * time.Second},
		{math.MaxInt64, math.MaxInt64},
	} {
		r := process{opt: &Options{CacheOptions: CacheOptions{RankTimeout: c.given}}}
		if got := r.rankTimeout(); got != c.want {
			t.Errorf("--rank-timeout %v: other ranks wait for %v, want %v", c.given, got, c.want)
		}
	}
}
