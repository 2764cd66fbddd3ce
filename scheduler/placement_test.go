package scheduler

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

// TestPlacedInSnapshots checks that a Placed is written and read with a snapshot, that it is part
// of what a plan is made from, but not of a checkpoint's digest, and that samples and ranks that do
// not exist are refused.
func TestPlacedInSnapshots(t *testing.T) {
	placed := func() *Placed {
		return &Placed{
			CapacityBytes: []int64{300, 200}, Residents: [][]SampleID{{1, 4}, {}},
			TailEpoch: 2, Tail: []SampleID{3, 0, 3}, TailHome: []uint16{1, 0, 1},
		}
	}
	whole := &Snapshot{
		Epoch: 3, Scores: []float32{1, 2, 3, 4, 5}, Placed: placed(),
		Learned: Known([]byte("learned")),
	}
	read, err := DecodeSnapshot(whole.Encode())
	if err != nil || !reflect.DeepEqual(read.Placed, whole.Placed) ||
		string(read.Learned()) != "learned" {
		t.Fatalf("%+v, %v", read, err)
	}
	hashed := *whole
	hashed.Placed = nil
	scores := &Snapshot{Epoch: 3, Scores: whole.Scores}
	if whole.Digest() != hashed.Digest() || sourceDigest(StreamID{}, &hashed) != scores.Digest() {
		t.Error("a training cannot resume where a hash gives samples their owners")
	}
	digests := []Digest{sourceDigest(StreamID{}, &hashed), sourceDigest(StreamID{}, whole)}
	for name, change := range map[string]func(*Placed){
		"capacity": func(p *Placed) { p.CapacityBytes[1]++ },
		"resident": func(p *Placed) { p.Residents[0][1]-- },
		"rank":     func(p *Placed) { p.Residents[0], p.Residents[1] = nil, p.Residents[0] },
		"tail":     func(p *Placed) { p.Tail[1]++ },
		"owner":    func(p *Placed) { p.TailHome[0] = 0 },
		"epoch":    func(p *Placed) { p.TailEpoch-- },
	} {
		other := *whole
		other.Placed = placed()
		change(other.Placed)
		digest := sourceDigest(StreamID{}, &other)
		if slices.Contains(digests, digest) {
			t.Errorf("%s: plans from different states have one digest", name)
		}
		digests = append(digests, digest)
	}
	for name, change := range map[string]func(*Placed){
		"no such sample":         func(p *Placed) { p.Residents[0][1] = 5 },
		"no such sample, tail":   func(p *Placed) { p.Tail[0] = 5 },
		"no such rank":           func(p *Placed) { p.TailHome[0] = 2 },
		"not ascending":          func(p *Placed) { p.Residents[0][0] = 4 },
		"fewer ranks' residents": func(p *Placed) { p.Residents = p.Residents[:1] },
	} {
		other := *whole
		other.Placed = placed()
		change(other.Placed)
		if _, err := DecodeSnapshot(other.Encode()); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPlacedDrawsAreLocal trains on small partitions, with few draws per trainer and batch: nearly
// all hits are in the memory of the rank that consumes them.
func TestPlacedDrawsAreLocal(t *testing.T) {
	const batchSize, epochs = 8, 3
	for _, sampler := range []string{"weighted", "subset"} {
		w := newWorld(t, 5, 4, 1, batchSize, 1600, epochs, sampler, "clairvoyant", 0.1, AssignLocal,
			faults{})
		local, hits := 0, 0
		for _, r := range w.ranks {
			r.stager.lanes[0].own.drew = func(_, epoch, place int, found Outcome) {
				plan := w.plans[epoch]
				if epoch == epochs-1 && found == Hit && int(plan.World[plan.Consumer[place]]) == r.rank {
					local++
				}
			}
		}
		for epoch := range epochs {
			w.plan(epoch, 0)
			w.train(epoch, 0, 3)
			if plan := w.plans[epoch]; plan.Home == nil || plan.PartLen(0, 0) != batchSize {
				t.Fatalf("trainer 0 has %d draws", plan.PartLen(0, 0))
			}
		}
		w.settled()
		for _, r := range w.ranks {
			hits += r.stager.PlannedHits(0, epochs-1)
		}
		t.Logf("%s: %d of %d hits are local", sampler, local, hits)
		if hits < 100 || float64(local) < 0.95*float64(hits) {
			t.Errorf("%s: %d of %d hits are local", sampler, local, hits)
		}
	}
}
