package mpicache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/liveness"
	"rankpool/mpicache/transport"
)

func TestPulse(t *testing.T) {
	const bound = time.Minute
	both := func(at time.Duration) (int, bool) { return 1 + int(at/time.Second)%2, false }
	for name, c := range map[string]struct {
		rank   int
		hears  func(at time.Duration) (from int, leaves bool) // each second; -1: none
		newly  string
		atLast []int
		jump   time.Duration // of the clock, after two minutes, as when this process was stopped
	}{
		"nobody was heard of yet": {
			0, func(time.Duration) (int, bool) { return -1, false }, "",
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
			0, func(time.Duration) (int, bool) { return 1, false }, "", []int{2}, 0,
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
		var p pulse
		p.init(c.rank, 3, bound)
		var lost []string
		var all []int
		for at := time.Duration(0); at < 10*time.Minute; at += time.Second {
			if from, leaves := c.hears(at); from >= 0 {
				p.heard(from, leaves)
			}
			var newly []int
			now := at
			if at > 2*time.Minute {
				now += c.jump
			}
			newly, all = p.tick(now)
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

// TestRankThatSaidSomething has a rank send a message before its first sign of life: from then on
// its silence counts.
func TestRankThatSaidSomething(t *testing.T) {
	c := newCluster(t, 2, 10, 1<<12, func(cfg *Config) { cfg.RankTimeout = time.Hour })
	defer c.close()
	if !c.nodes[1].PeersLive(t.Context()) {
		t.Fatal("rank 0 has not answered")
	}
	p := &c.nodes[0].pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.seen[1] {
		t.Error("rank 0 has answered rank 1, and does not know that it is there")
	}
}

// TestLostRank silences one of three ranks: the others report it, and a trainer that waits for a
// plan gets an error, then and not before.
func TestLostRank(t *testing.T) {
	const bound = 200 * time.Millisecond
	var mu sync.Mutex
	lost, told := map[string]bool{}, make(chan struct{})
	c := newCluster(t, 3, 300, 1<<20, func(cfg *Config) {
		cfg.RankTimeout = bound
		cfg.Lost = func(rank int) {
			mu.Lock()
			defer mu.Unlock()
			lost[fmt.Sprint(cfg.Transport.Rank(), " misses ", rank)] = true
			if len(lost) == 4 {
				close(told)
			}
		}
	})
	// the other two do not open the data set, so that its plan is waited for
	tr, err := c.trainer(0, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.open("pads", 8); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := tr.plan(0)
		refused <- err
	}()
	c.wantMet(bound)
	select {
	case err := <-refused:
		t.Errorf("the plan was not waited for: %v", err)
	default:
	}
	c.nodes[2].cfg.Transport.(*transport.Local).Silence()
	<-told
	var says door.Error
	if err := <-refused; !errors.As(err, &says) || says.Code != door.CodeNotReady ||
		!strings.Contains(says.Sentence, "rank 2 has not answered for 200ms") {
		t.Errorf("the trainer received %v", err)
	}
	mu.Lock()
	if !lost["0 misses 2"] || !lost["1 misses 2"] || !lost["2 misses 0"] || !lost["2 misses 1"] {
		t.Errorf("lost: %v", lost)
	}
	mu.Unlock()
	if err := tr.close(); err != nil {
		t.Error(err)
	}
	for _, n := range c.nodes {
		_ = n.Abandon() // the silent one would be waited for
	}
}

// wantMet returns when all ranks have heard of each other.
func (c *cluster) wantMet(bound time.Duration) {
	for _, n := range c.nodes {
		for met := false; !met; time.Sleep(liveness.Every(bound)) {
			n.pulse.mu.Lock()
			met = len(n.pulse.seen) == len(c.nodes)-1
			n.pulse.mu.Unlock()
		}
	}
}

// TestSignsBetweenRanks checks that a rank shows rank 0 a sign of life in each beat, and every
// other rank signsWithin times within the bound.
func TestSignsBetweenRanks(t *testing.T) {
	const ranks, bound = 40, 2 * time.Minute
	for rank := range ranks {
		var p pulse
		p.init(rank, ranks, bound)
		beats := int(bound / liveness.Every(bound))
		signs := make([]int, ranks)
		for range beats {
			for _, to := range p.next(rank) {
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
