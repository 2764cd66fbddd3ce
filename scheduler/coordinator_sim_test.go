package scheduler

import (
	"maps"
	"slices"
	"testing"
)

// simTrainer is what a trainer keeps for a cache that is restarted: the plans that it has had
// and their states, of two epochs, and what it has reported of three.
type simTrainer struct {
	planned []PlanSource
	states  map[int][]byte // by epoch
	trained []Trained
}

// got records that the trainer got the plan of an epoch, and keeps the state that the plan was made
// from.
func (s *simTrainer) got(r *simRank, epoch int, scores Digest) {
	if scores == "" {
		return
	}
	planned := append(slices.Clone(s.planned), PlanSource{epoch, scores})
	s.planned = planned[max(0, len(planned)-2):]
	if s.states == nil {
		s.states = map[int][]byte{}
	}
	s.states[epoch] = r.disk[epoch]
	maps.DeleteFunc(s.states, func(e int, _ []byte) bool { return e < epoch-1 })
	s.trained = slices.DeleteFunc(s.trained, func(e Trained) bool { return e.Epoch < epoch-2 })
}

// byItself returns a batch that a trainer reads from storage.
func (w *world) byItself(trainer, epoch, batch int) Deliver {
	d := Deliver{IDs: w.plans[epoch].Part(batch, trainer)}
	d.Source = slices.Repeat([]Source{NotHere}, len(d.IDs))
	return d
}

// restart kills all ranks and starts them again. What was under way is lost, and what is on disk
// may be, if a trainer can put it back. Trainers open the data set again, and report again.
func (w *world) restart() {
	w.pending = nil
	for rank, r := range w.ranks {
		next := w.newRank(rank)
		if !slices.Contains(w.cfg.World, int32(rank)) || w.rng.IntN(2) == 0 {
			next.disk = r.disk
		}
		if w.chance(w.faults.warm) {
			next.recover(r)
		}
		w.ranks[rank] = next
	}
	for t, rank := range w.cfg.World {
		w.sent[t] = nil
		disk := w.ranks[rank].disk
		for epoch, state := range w.trainers[t].states {
			if disk[epoch] == nil {
				disk[epoch] = state
			}
		}
		w.open(t)
		for _, e := range w.trainers[t].trained {
			w.send(t, e)
		}
	}
}

// timeOut ends all questions under way: the peers were restarted and will not answer. It reports
// whether there were any.
func (w *world) timeOut() (any bool) {
	for _, r := range w.ranks {
		for _, ticket := range slices.Sorted(maps.Keys(r.answers)) {
			delete(r.answers, ticket)
			r.step(PeerLost{ticket})
			any = true
		}
	}
	return any
}

// TestCoordinatorsUnderRestarts kills all ranks at random moments, and some of what they have kept:
// every plan must be that of an undisturbed training, and no trainer may be refused. Some ranks
// take over the memory of their predecessors.
func TestCoordinatorsUnderRestarts(t *testing.T) {
	const epochs = 4
	train := func(seed uint64, f faults) *world {
		f.idle = int(seed / 8 % 2)
		w := newWorld(t, seed, f.idle+1+int(seed%3), 1+int(seed/2%2), 3, 200, epochs,
			[]string{"pads", "weighted-once", "uniform"}[seed%3], "clairvoyant", 0.3, AssignLocal,
			f)
		for epoch := range epochs {
			w.plan(epoch, 0)
			w.train(epoch, 0, int(seed%3))
			if w.chance(f.restart / 8) {
				w.restart()
			}
		}
		return w
	}
	for seed := range *seeds {
		want, got := train(seed, faults{}), train(seed, faults{restart: 24, warm: 2, spoilt: 9})
		for epoch, plan := range want.plans {
			other := got.plans[epoch]
			if !slices.Equal(plan.IDs, other.IDs) || !slices.Equal(plan.Consumer, other.Consumer) {
				t.Fatalf("seed %d: epoch %d is another one when ranks are restarted", seed,
					epoch)
			}
		}
	}
}
