package rank

import (
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
