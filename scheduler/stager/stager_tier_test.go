package stager

import (
	"errors"
	"fmt"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// tierBlock is the block size of a simulated tier: a sample occupies whole blocks.
const tierBlock = 64

// simTier is a tier of a simulation: what was stored, or is being stored.
type simTier map[draw.SampleID]*simStored

type simStored struct{ whole, erased bool }

var errTier = errors.New("the disk fails")

// tierStep executes a command to the tier, and checks that it is valid.
func (r *simRank) tierStep(c Command) {
	w := r.w
	switch c := c.(type) {
	case Store:
		if !r.bytes[c.ID] || r.tier[c.ID] != nil {
			w.t.Fatalf("rank %d: sample %d is to be stored, here: %v, in the tier: %v", r.rank,
				c.ID, r.bytes[c.ID], r.tier[c.ID])
		}
		s := &simStored{}
		r.tier[c.ID] = s
		w.later(func() { r.store(c.ID, s) })
	case Recall:
		s := r.tier[c.ID]
		if s == nil || !s.whole {
			w.t.Fatalf("rank %d: sample %d is to be recalled, and is not in the tier", r.rank, c.ID)
		}
		w.later(func() { r.recall(c.ID) })
	case Erase:
		if r.tier[c.ID] == nil {
			w.t.Fatalf("rank %d: sample %d is to be erased, and is not in the tier", r.rank, c.ID)
		}
		r.tier[c.ID].erased = true
		delete(r.tier, c.ID)
	case EndTier:
		if w.cfg.badTier == 0 {
			w.t.Fatalf("rank %d: a tier without faults is given up", r.rank)
		}
		w.ended++
	}
	used := int64(0)
	for id := range r.tier {
		used += (worldSize(id) + tierBlock - 1) / tierBlock * tierBlock
	}
	if used > r.stager.cfg.TierBytes {
		w.t.Fatalf("rank %d: %d bytes in a tier of %d", r.rank, used, r.stager.cfg.TierBytes)
	}
}

// store ends a Store.
func (r *simRank) store(id draw.SampleID, s *simStored) {
	if !r.bytes[id] {
		r.w.t.Fatalf("rank %d: sample %d was freed before it was stored", r.rank, id)
	}
	e := Stored{ID: id}
	switch {
	case r.w.chance(r.w.cfg.busyTier):
		e.Busy = true
	case r.w.chance(r.w.cfg.badTier):
		e.Err = errTier
	}
	s.whole = e.Err == nil && !e.Busy
	if !s.whole && !s.erased {
		delete(r.tier, id)
	}
	r.step(e)
}

// recall ends a Recall, even if the sample was erased meanwhile.
func (r *simRank) recall(id draw.SampleID) {
	switch {
	case r.w.chance(r.w.cfg.noRoom):
		if !r.hungry {
			r.hungry = true
			r.w.later(func() { r.hungry = false; r.step(Room{}) })
		}
		r.step(Starved{ID: id})
	case r.w.chance(r.w.cfg.badTier):
		r.step(Recalled{ID: id, Err: errTier})
	default:
		r.w.recalled++
		r.bytes[id] = true
		r.step(Recalled{ID: id})
	}
}

// tierSettled checks, at the end, that no sample is being stored, and ends the tier.
func (r *simRank) tierSettled() {
	t := r.stager.store.tier
	if t == nil {
		return
	}
	if t.storingBytes != 0 {
		r.w.t.Fatalf("rank %d: %d bytes are being stored forever", r.rank, t.storingBytes)
	}
	for id := range t.leaving {
		if r.stager.copies.get(id).pins == 0 {
			r.w.t.Fatalf("rank %d: sample %d leaves memory forever", r.rank, id)
		}
	}
	for id := range r.tier {
		if !t.cache.Resident(id) {
			r.w.t.Fatalf("rank %d: sample %d was never erased", r.rank, id)
		}
	}
	r.stager.store.tier = nil
}

// reads is the number of reads of storage.
func (w *world) reads() (n int) {
	for _, epoch := range w.read {
		for _, reads := range epoch {
			n += reads
		}
	}
	return n
}

// TestTierTakesWhatMemoryGivesUp checks that memory and a tier that together hold all samples read
// few samples twice: those that the tier refused because writing was behind. What is read from the
// tier is counted.
func TestTierTakesWhatMemoryGivesUp(t *testing.T) {
	for _, sampler := range []string{"torch", "uniform", "pads", "weighted-once", "sequential"} {
		for _, policy := range []string{"clairvoyant", "lru"} {
			for _, ranks := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s/%s/%d", sampler, policy, ranks), func(t *testing.T) {
					run := func(tier float64) (w *world) {
						w = newWorld(t, worldConfig{
							seed: 7, ranks: ranks, perRank: 2, batchSize: 4, samples: 500, ahead: 3,
							sampler: sampler, policy: policy, capacity: 0.2, tier: tier,
						})
						w.trainAll(3)
						w.wantNoFaults(t)
						return w
					}
					without, with := run(0), run(1.7) // of 100 to 160 bytes, with blocks of 64
					hits := with.tierHits
					if distinct := 500; with.reads() > distinct+distinct/2 ||
						with.reads() > without.reads() {
						t.Errorf("%d reads of storage with a tier, %d without", with.reads(),
							without.reads())
					}
					if hits == 0 || hits > with.recalled {
						t.Errorf("%d tier hits, %d samples were recalled", hits, with.recalled)
					}
				})
			}
		}
	}
}

// TestTierUnderFaults checks that every batch is delivered whatever the tier does, and that a tier
// that fails is abandoned.
func TestTierUnderFaults(t *testing.T) {
	ended, recalled := 0, 0
	for seed := range 2 * *seeds {
		f := faults{
			loseAnswers: 9, noRoom: 11, unreadable: 50, busyTier: []int{7, 2, 1}[seed/7%3],
			badTier: []int{0, 30, 3, 1}[seed%4],
		}
		w := newWorld(t, worldConfig{
			seed: seed, ranks: 1 + int(seed/3%4), perRank: 1 + int(seed%2), batchSize: 3, samples: 200,
			sampler:  []string{"uniform", "pads", "torch"}[seed%3],
			policy:   []string{"clairvoyant", "lru"}[seed/2%2],
			capacity: 0.2, tier: []float64{0.1, 0.3, 1.7}[seed/5%3],
			assignment: plan.Assignment(seed / 4 % 2), from: int(seed % 5), ahead: int(seed % 4), faults: f,
		})
		w.trainAll(3)
		if hits := w.tierHits; hits > w.recalled {
			t.Errorf("seed %d: %d tier hits, %d samples were recalled", seed, hits, w.recalled)
		}
		ended, recalled = ended+w.ended, recalled+w.recalled
		if f.badTier == 1 && w.recalled > 0 {
			t.Errorf("seed %d: a tier that cannot be written to gave %d samples", seed, w.recalled)
		}
	}
	if ended == 0 || recalled == 0 {
		t.Errorf("%d tiers were given up, %d samples were recalled", ended, recalled)
	}
}

// TestTierReplays checks that the same events give the same commands, in the same order.
func TestTierReplays(t *testing.T) {
	replays(t, 3, 0.5, faults{loseAnswers: 20, badTier: 50, busyTier: 9})
}

// TestTierGoesOnlyAfterFailuresInARow checks when a tier is abandoned.
func TestTierGoesOnlyAfterFailuresInARow(t *testing.T) {
	s := New(Config{
		Ranks: 1, World: []int32{0}, Samples: 1, Size: func(draw.SampleID) int64 { return 1 },
		Policy: NewClairvoyant(), TierBytes: 1,
	})
	for i := range 2*failuresMax - 1 {
		var err error
		if i != failuresMax-1 {
			err = errTier
		}
		s.judge(err)
		if last := i == 2*failuresMax-1; (s.store.tier == nil) != last {
			t.Errorf("after event %d, given up: %v", i, !last)
		}
	}
	s.judge(errTier)
	if s.store.tier != nil || len(s.out) != 1 || s.out[0] != Command(EndTier{}) {
		t.Errorf("commands %v", s.out)
	}
}
