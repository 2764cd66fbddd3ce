package rank

import (
	"os"
	"sync"
	"time"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/mpicache/transport"
)

// OthersPatience is how long a rank whose training is over waits for the others': one of them may still write its last checkpoint, and
// the end of one task's rank is the end of all under most launchers.
const OthersPatience = 10 * time.Minute

// messageTold says that the sender was told to end; from rank 0 it says that all were. The node's own messages have other kinds.
const messageTold = 0xff

// endTogether is the transport of ranks that each have a launcher of their own, which tells only its rank to end: they end together.
type endTogether struct {
	transport.Transport
	mu    sync.Mutex
	told  map[int]bool  // on rank 0: who was
	all   chan struct{} // closed when all were
	ended sync.Once
}

func newEndTogether(t transport.Transport) *endTogether {
	return &endTogether{Transport: t, told: map[int]bool{}, all: make(chan struct{})}
}

// Start implements Transport.
func (t *endTogether) Start(handle func(from int, msg []byte)) {
	t.Transport.Start(func(from int, msg []byte) {
		if len(msg) == 1 && msg[0] == messageTold {
			t.hear(from)
			return
		}
		handle(from, msg)
	})
}

// hear takes the message of a rank that was told to end.
func (t *endTogether) hear(from int) {
	if t.Rank() != 0 {
		t.ended.Do(func() { close(t.all) })
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told[from] = true
	if len(t.told) < t.Size() {
		return
	}
	t.ended.Do(func() {
		for rank := 1; rank < t.Size(); rank++ {
			t.Post(rank, []byte{messageTold})
		}
		close(t.all)
	})
}

// await tells that this rank was told to end, and returns when all were, at a signal that ends a run, when a rank is lost, which
// cannot be told any more, or after patience.
func (t *endTogether) await(signals <-chan os.Signal, lost <-chan int, patience time.Duration) {
	t.Post(0, []byte{messageTold})
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
