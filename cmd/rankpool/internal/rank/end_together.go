package rank

import (
	"context"
	"os"
	"sync"
	"time"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/mpicache/transport/ranks"
)

// OthersPatience is how long a rank whose training is over waits for that of the others: one of
// them may still be writing its last checkpoint, and under most launchers the end of one task ends
// all.
const OthersPatience = 10 * time.Minute

// The channels between the ranks.
const (
	channelNode byte = iota // the node's
	channelTold             // see endTogether
	channelIntro
	channelBlocks
	channelListing
	channelStates
	channelPulse
)

// endTogether lets ranks end at the same time if each has its own launcher, which asks only its own
// rank to end.
type endTogether struct {
	tell func()        // announces, once, that this rank was asked to end
	all  chan struct{} // closed when all ranks were
}

func newEndTogether(m *ranks.Mux) *endTogether {
	all := make(chan struct{})
	return &endTogether{all: all, tell: sync.OnceFunc(func() {
		go func() {
			if ranks.Barrier(context.Background(), m, channelTold) == nil {
				close(all)
			}
		}()
	})}
}

// await announces that this rank was asked to end. It returns when all ranks were, when a signal
// arrives that ends a run, when a rank is lost, since it can no longer be asked, or after patience.
func (t *endTogether) await(signals <-chan os.Signal, lost <-chan int, patience time.Duration) {
	t.tell()
	late := time.After(patience)
	for {
		select {
		case <-t.all:
			return
		case s := <-signals:
			if exit.EndsRun(s) {
				return
			}
		case <-lost:
			return
		case <-late:
			return
		}
	}
}
