package stager

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// newLanes returns a world in which a trainer on the first rank trains.
func newLanes(
	t *testing.T, seed uint64, ranks, samples int, capacity float64, sampler string, batchSize int,
) *world {
	return newWorld(t, worldConfig{
		seed: seed, ranks: ranks, idle: ranks - 1, perRank: 1, batchSize: batchSize,
		samples: samples, sampler: sampler, policy: "clairvoyant", capacity: capacity,
		window: 40 / batchSize, probes: true,
		faults: faults{loseAnswers: 15, noRoom: 20, unreadable: 60},
	})
}

// TestLanesUnderFaults lets trainings begin, pause and end at random, with faults. Each gets what
// it draws, none delays the others, and an ended one leaves nothing behind.
func TestLanesUnderFaults(t *testing.T) {
	reread := 0
	for seed := range *seeds {
		samplers := []string{"torch", "pads", "chunks", "weighted-once", "subset"}
		ranks := 1 + int(seed%3)
		w := newLanes(t, seed, ranks, 150, []float64{0, 0.2, 1}[seed/3%3], samplers[seed%5], 4)
		for w.batches < 400 {
			switch n := w.rng.IntN(200); {
			case n == 0 && len(w.lanes) < 5:
				world := trainersOf(ranks, 1+w.rng.IntN(2))
				w.open(len(w.lanes), samplers[w.rng.IntN(5)], world, 1+w.rng.IntN(5))
			case n == 1:
				if number := w.rng.IntN(len(w.lanes)); w.lanes[number] != nil && len(w.lanes) > 2 {
					w.close(number)
				}
			case n == 2:
				if number := w.rng.IntN(len(w.lanes)); w.lanes[number] == nil && number > 0 {
					w.open(number, "uniform", trainersOf(ranks, 1), 3)
				}
			case n == 3:
				if l := w.lanes[w.rng.IntN(len(w.lanes))]; l != nil {
					l.stopped = !l.stopped
				}
			}
			going := false
			for _, l := range w.lanes {
				if l == nil || l.stopped {
					continue
				}
				going = true
				if !l.busy && w.rng.IntN(1+l.number) == 0 {
					w.train(l)
				}
			}
			if !w.one() && going && !slices.ContainsFunc(w.lanes,
				func(l *simLane) bool { return l != nil && !l.stopped && !l.busy }) && !w.timeOut() {
				t.Fatalf("seed %d: nothing happens any more, after %d batches", seed, w.batches)
			}
		}
		w.settled()
		reread += w.reread
	}
	if reread == 0 {
		t.Error("no sample that was in memory was read for a probe")
	}
}

// timeOut ends a question: its answer may wait for a lane that has stopped.
func (w *world) timeOut() bool {
	for _, r := range w.ranks {
		for _, ticket := range slices.Sorted(maps.Keys(r.answers)) {
			delete(r.answers, ticket)
			r.step(PeerLost{ticket})
			return true
		}
	}
	return false
}

// TestLanesComeAndGo opens and closes a hundred lanes.
func TestLanesComeAndGo(t *testing.T) {
	w := newLanes(t, 1, 2, 60, 0.3, "torch", 4)
	for i := range 100 {
		number := 1 + i%7
		w.open(number, "uniform", trainersOf(2, 1), 2)
		for range 5 {
			for _, l := range w.lanes {
				if l != nil && !l.busy {
					w.train(l)
				}
			}
			for w.one() {
			}
		}
		w.close(number)
	}
	if n := len(w.ranks[0].stager.lanes); n > 8 {
		t.Errorf("there are %d lanes", n)
	}
	w.settled()
}

// TestLaneWindow checks that a lane that stands still leaves the window to the others.
func TestLaneWindow(t *testing.T) {
	w := newLanes(t, 1, 1, 3200, 0.1, "torch", 1)
	w.open(1, "torch", []int32{0}, 1)
	for range 200 {
		for _, l := range w.lanes {
			w.train(l)
		}
		for w.one() {
		}
	}
	s := w.ranks[0].stager
	a, b := s.lanes[0], s.lanes[1]
	if most := s.cfg.WindowBytes/2 + 200; a.heldBytes > most || b.heldBytes > most ||
		b.heldBytes < most/2 {
		t.Errorf("lanes hold %d and %d bytes of a window of %d", a.heldBytes, b.heldBytes,
			s.cfg.WindowBytes)
	}
	for range 2900 {
		w.train(w.lanes[0])
		for w.one() {
		}
	}
	ahead := a.cur.position(a.batch) - a.demand
	if ahead < 10 || a.heldBytes+b.heldBytes > s.cfg.WindowBytes+200 {
		t.Errorf("%d batches ahead of the lane that goes, which hold %d bytes, %d of the other",
			ahead, a.heldBytes, b.heldBytes)
	}
}

// TestLaneNeeds checks that reads of a lane that begins late, or was silent for long, come neither
// before nor after those of the others.
func TestLaneNeeds(t *testing.T) {
	w := newLanes(t, 1, 1, 400, 0, "torch", 1)
	train := func(number int) {
		w.train(w.lanes[number])
		for w.one() {
		}
	}
	go100 := func(number int) {
		for range 100 {
			train(number)
		}
	}
	go100(0)
	w.open(1, "torch", []int32{0}, 1)
	train(1)
	s := w.ranks[0].stager
	if a, b := s.lanes[0], s.lanes[1]; a.needOf(a.demand) != b.needOf(b.demand) {
		t.Errorf("a newcomer's reads need %d, the others' %d", b.needOf(b.demand), a.needOf(a.demand))
	}
	go100(0)
	train(1)
	if a, b := s.lanes[0], s.lanes[1]; b.needOf(b.demand) != a.needOf(a.demand) {
		t.Errorf("reads of one that was silent need %d, the others' %d", b.needOf(b.demand),
			a.needOf(a.demand))
	}
	if d := fmt.Sprint(s.Demand()); d == "0" {
		t.Error("nothing is demanded")
	}
}
