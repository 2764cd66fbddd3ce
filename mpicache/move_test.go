package mpicache

import (
	"testing"
	"time"
)

// TestResumeWhereATrainerOpensLate has a training go on in mid-epoch. One trainer asks for the plan before the other
// rank's has opened the data set: that rank does not take itself for one without trainers, which follows the others
// from an epoch's first batch.
func TestResumeWhereATrainerOpensLate(t *testing.T) {
	const epoch, batch = 1, 7
	cl := newCluster(t, 2, 240, 5000)
	defer cl.close()
	answers := make(chan error, 2)
	for rank := range cl.nodes {
		tr, err := cl.trainer(rank, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close()
		if err := tr.open("pads", 4); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := tr.Call(KindPlan, u32s(0, epoch, batch))
			answers <- err
		}()
		last := cl.nodes[len(cl.nodes)-1].streams[0]
		for rank == 0 && !last.heard(0, epoch) {
			time.Sleep(time.Millisecond)
		}
	}
	for range cl.nodes {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	for rank, n := range cl.nodes {
		n.streams[0].locked(func() {
			if from := n.streams[0].planner.from; from != batch {
				t.Errorf("rank %d goes on from batch %d, not %d", rank, from, batch)
			}
		})
	}
}

// heard reports whether a rank knows that a trainer went on to an epoch.
func (s *stream) heard(trainer, epoch int) (yes bool) {
	s.locked(func() { yes = s.planner.finish[trainer] == epoch })
	return yes
}
