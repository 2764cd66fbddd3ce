package mpicache

import (
	"testing"
	"time"

	"rankpool/mpicache/door"
)

// TestResumeWhereATrainerOpensLate has a training continue in mid-epoch. One trainer asks for the
// plan before the other rank's has opened the data set: that rank does not take itself for one
// without trainers, which follows the others from an epoch's first batch.
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
			_, err := tr.Call(door.KindPlan, u32s(0, epoch, batch))
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
			if from := n.streams[0].coordinator.First(); from != batch {
				t.Errorf("rank %d resumes from batch %d, not %d", rank, from, batch)
			}
		})
	}
}

// heard reports whether a rank knows that a trainer moved to an epoch.
func (s *stream) heard(trainer, epoch int) (yes bool) {
	s.locked(func() {
		at, ok := s.coordinator.In(trainer)
		yes = ok && at == epoch
	})
	return yes
}

// TestResumeWhereARankHasNoTrainer has a training continue in mid-epoch. A rank without trainers
// stages what is still to come.
func TestResumeWhereARankHasNoTrainer(t *testing.T) {
	const epoch, batch = 1, 7
	for _, sampler := range []string{"pads", "torch"} {
		cl := newCluster(t, 2, 240, 5000)
		defer cl.close()
		tr, err := cl.trainer(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.close()
		if err := tr.open(sampler, 8); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Call(door.KindPlan, u32s(0, epoch, batch)); err != nil {
			t.Fatal(err)
		}
		last := cl.nodes[1].streams[0]
		for !last.went(epoch) {
			time.Sleep(time.Millisecond)
		}
		last.locked(func() {
			if from := last.coordinator.First(); from != batch {
				t.Errorf("%s: the rank without trainers resumes from batch %d, not %d", sampler,
					from, batch)
			}
		})
	}
}

// went reports whether a rank has planned an epoch.
func (s *stream) went(epoch int) (yes bool) {
	s.locked(func() { yes = s.stager != nil && s.coordinator.Knows(epoch) })
	return yes
}
