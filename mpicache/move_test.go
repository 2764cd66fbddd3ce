package mpicache

import (
	"testing"

	"rankpool/mpicache/door"
	"rankpool/mpicache/transport"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

// noticed is a channel of capacity 1, which holds a value if something has happened since it was
// last read.
type noticed chan struct{}

func (n noticed) notice() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// noticedLink notices each message that its rank has handled.
type noticedLink struct {
	transport.Transport
	noticed
}

func (l noticedLink) Start(handle func(from int, msg []byte)) {
	l.Transport.Start(func(from int, msg []byte) {
		handle(from, msg)
		l.notice()
	})
}

// noticedStorage notices each read.
type noticedStorage struct {
	Storage
	noticed
}

func (s noticedStorage) Fetch(
	id draw.SampleID, into []byte, need uint64, done func(error),
) {
	s.notice()
	s.Storage.Fetch(id, into, need, done)
}

// TestResumeWhereATrainerOpensLate resumes a training in mid-epoch. One trainer requests the plan
// before the other rank's trainer has opened the data set. That rank must not follow from the
// epoch's first batch, as ranks without trainers do.
func TestResumeWhereATrainerOpensLate(t *testing.T) {
	const epoch, batch = 1, 7
	handled := make(noticed, 1)
	cl := newCluster(t, 2, 240, 5000, func(cfg *Config) {
		if cfg.Transport.Rank() == 1 {
			cfg.Transport = noticedLink{cfg.Transport, handled}
		}
	})
	defer cl.close()
	answers := make(chan error, 2)
	for rank := range cl.nodes {
		tr := cl.mustOpen(t, rank, 2, "pads", 4)
		defer tr.close()
		go func() {
			_, err := tr.Call(door.KindPlan, u32s(0, epoch, batch))
			answers <- err
		}()
		last := cl.nodes[len(cl.nodes)-1]
		for rank == 0 && !last.heard(0, epoch) {
			<-handled
		}
	}
	for range cl.nodes {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	for rank, n := range cl.nodes {
		n.coordinating(func(c *protocol.Coordinator) {
			if from := c.First(); from != batch {
				t.Errorf("rank %d resumes from batch %d, not %d", rank, from, batch)
			}
		})
	}
}

// heard reports whether a rank knows that a trainer moved to an epoch.
func (n *Node) heard(trainer, epoch int) (yes bool) {
	n.coordinating(func(c *protocol.Coordinator) {
		at, ok := c.In(trainer)
		yes = ok && at == epoch
	})
	return yes
}

// TestResumeWhereARankHasNoTrainer resumes a training in mid-epoch. A rank without trainers stages
// the rest of the epoch.
func TestResumeWhereARankHasNoTrainer(t *testing.T) {
	const epoch, batch = 1, 7
	for _, sampler := range []string{"pads", "torch"} {
		staging := make(noticed, 1)
		cl := newCluster(t, 2, 240, 5000, func(cfg *Config) {
			if cfg.Transport.Rank() == 1 {
				cfg.Data[0].Storage = noticedStorage{cfg.Data[0].Storage, staging}
			}
		})
		defer cl.close()
		tr := cl.mustOpen(t, 0, 1, sampler, 8)
		defer tr.close()
		if _, err := tr.Call(door.KindPlan, u32s(0, epoch, batch)); err != nil {
			t.Fatal(err)
		}
		<-staging
		cl.nodes[1].coordinating(func(c *protocol.Coordinator) {
			if from := c.First(); from != batch {
				t.Errorf("%s: the rank without trainers resumes from batch %d, not %d", sampler,
					from, batch)
			}
		})
	}
}

// coordinating calls f with the coordinator of the training without a job name.
func (n *Node) coordinating(f func(c *protocol.Coordinator)) {
	set := n.rank.Sets[0]
	set.Store().Locked(func() { f(set.Find("").Coordinator()) })
}
