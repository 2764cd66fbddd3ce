package rank

import (
	"math"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
)

func TestEndTogether(t *testing.T) {
	const n = 3
	var group []*endTogether
	for _, transport := range transport.NewLocal(n) {
		group = append(group, newEndTogether(ranks.NewMux(transport)))
		defer transport.Close()
	}
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	group[1].await(signals, nil, time.Hour) // a signal ends it, even if no other rank received one
	// So does the end of patience. A second signal has no effect.
	group[1].await(nil, nil, 0)
	lost := make(chan int, 1)
	lost <- 2
	group[1].await(nil, lost, time.Hour) // a rank that hangs is not waited for
	for _, e := range group {
		select {
		case <-e.all:
			t.Fatal("a rank reports that all were signaled before they were")
		default:
		}
	}
	var ended sync.WaitGroup
	for _, e := range []*endTogether{group[0], group[2]} {
		ended.Go(func() { e.await(nil, nil, time.Hour) })
	}
	ended.Wait()
	<-group[1].all
}

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
