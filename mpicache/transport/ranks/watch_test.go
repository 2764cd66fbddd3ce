package ranks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rankpool/mpicache/liveness"
	"rankpool/mpicache/transport"
)

// aRank is a rank of a group whose messages go nowhere.
type aRank struct {
	transport.Transport
	rank, size int
}

func (p aRank) Rank() int { return p.rank }
func (p aRank) Size() int { return p.size }

func (p aRank) Start(func(from int, msg []byte)) {}

func TestSilence(t *testing.T) {
	const bound = time.Minute
	both := func(at time.Duration) (int, bool) { return 1 + int(at/time.Second)%2, false }
	for name, c := range map[string]struct {
		rank   int
		hears  func(at time.Duration) (from int, leaves bool) // each second; -1: none
		newly  string
		atLast []int
		jump   time.Duration // of the clock, after two minutes, as when this process was stopped
	}{
		"hears from no rank": {
			0, func(time.Duration) (int, bool) { return -1, false }, "1 at 1m0s, 2 at 1m0s",
			[]int{1, 2},
			0,
		},
		"one falls silent": {0, func(at time.Duration) (int, bool) {
			if at > time.Minute {
				return 1, false
			}
			return 1 + int(at/time.Second)%2, false
		}, "2 at 1m59s", []int{2}, 0},
		"this rank is stopped for an hour": {0, both, "", nil, time.Hour},
		"the clock jumps back by an hour":  {0, both, "", nil, -time.Hour},
		"the clock jumps on by a year": {
			2, func(at time.Duration) (int, bool) { return int(at/time.Second) % 2, false },
			"", nil, 365 * 24 * time.Hour,
		},
		"one is never heard of": {
			0, func(time.Duration) (int, bool) { return 1, false }, "2 at 1m0s",
			[]int{2},
			0,
		},
		"one falls silent to another, not to rank 0": {1, func(at time.Duration) (int, bool) {
			if at < time.Minute && int(at/time.Second)%2 == 1 {
				return 2, false
			}
			return 0, false
		}, "2 at 1m59s", []int{2}, 0},
		"stopped, and then one falls silent": {0, func(at time.Duration) (int, bool) {
			if at > 3*time.Minute {
				return 1, false
			}
			return both(at)
		}, "2 at 1h3m59s", []int{2}, time.Hour},
		"one leaves": {0, func(at time.Duration) (int, bool) {
			if at == 10*time.Second {
				return 2, true
			}
			return 1, false
		}, "", nil, 0},
		"rank 0 falls silent": {2, func(at time.Duration) (int, bool) {
			if at == 10*time.Second {
				return 0, false
			}
			return 1, false
		}, "0 at 1m10s", []int{0}, 0},
	} {
		w := NewWatch(aRank{rank: c.rank, size: 3}, WatchOptions{Bound: bound})
		var lost []string
		var all []int
		for at := time.Duration(0); at < 10*time.Minute; at += time.Second {
			if from, left := c.hears(at); from >= 0 {
				kind := sign
				if left {
					kind = leaves
				}
				w.hear(from, kind)
			}
			var newly []int
			now := at
			if at > 2*time.Minute {
				now += c.jump
			}
			newly, all, _ = w.silent(now)
			for _, r := range newly {
				lost = append(lost, fmt.Sprint(r, " at ", now))
			}
		}
		if got := strings.Join(lost, ", "); got != c.newly || !slices.Equal(all, c.atLast) {
			t.Errorf("%s: lost %q and %v in the end, want %q and %v", name, got, all, c.newly,
				c.atLast)
		}
	}
}

// TestRankStoppedAsItStarts silences one of three ranks before its first sign of life: the others,
// which are not ready yet, miss it, and it them.
func TestRankStoppedAsItStarts(t *testing.T) {
	missed := make(chan string, 100)
	group := transport.NewLocal(3)
	group[2].(*transport.Local).Silence()
	for _, rank := range group {
		w := NewWatch(rank, WatchOptions{Bound: time.Second, Lost: func(lost int) {
			missed <- fmt.Sprint(rank.Rank(), " misses ", lost)
		}})
		w.Start()
		defer func() {
			w.Stop()
			_ = rank.Close()
		}()
	}
	awaitMisses(missed)
}

// awaitMisses returns when rank 2 and the two others have missed each other. On a busy machine one
// of these may miss the other for a moment, too.
func awaitMisses(missed <-chan string) {
	due := []string{"0 misses 2", "1 misses 2", "2 misses 0", "2 misses 1"}
	for len(due) > 0 {
		who := <-missed
		due = slices.DeleteFunc(due, func(miss string) bool { return miss == who })
	}
}

// TestSignsBetweenRanks checks that a rank sends rank 0 a sign of life at each tick, and every
// other rank signsWithin of them within the bound.
func TestSignsBetweenRanks(t *testing.T) {
	const size, bound = 40, 2 * time.Minute
	for rank := range size {
		w := NewWatch(aRank{rank: rank, size: size}, WatchOptions{Bound: bound})
		beats := int(bound / liveness.Every(bound))
		signs := make([]int, size)
		for range beats {
			for _, to := range w.next() {
				signs[to]++
			}
		}
		for to, n := range signs {
			want := signsWithin
			switch {
			case to == rank:
				want = 0
			case rank == 0 || to == 0:
				want = beats
			}
			if n != want {
				t.Errorf("rank %d shows rank %d %d signs, want %d", rank, to, n, want)
			}
		}
	}
}
