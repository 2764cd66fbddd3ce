package stager

import (
	"fmt"
	"testing"

	"rankpool/scheduler/draw"
)

// restart starts all ranks again, between two epochs. Warm ones take over what was in memory.
func (w *world) restart(warm bool) {
	for w.one() {
	}
	l := w.lanes[0]
	l.plans = l.plans[:l.epoch+1]
	for rank, r := range w.ranks {
		w.ranks[rank] = w.newRank(rank)
		if warm {
			w.ranks[rank].recover(r)
		}
	}
}

// recover takes over the residents of the rank before, as they were in its memory.
func (r *simRank) recover(before *simRank) {
	var ids []draw.SampleID
	for _, u := range before.stager.Cache().uses() {
		if before.bytes[u.ID] {
			ids = append(ids, u.ID)
			r.bytes[u.ID] = true
		}
	}
	r.step(Recovered{IDs: ids})
	for _, id := range ids {
		if !r.stager.Cache().Resident(id) || !r.bytes[id] {
			r.w.t.Fatalf("rank %d: sample %d was resident, and is not any more", r.rank, id)
		}
	}
}

// check compares a sample's bytes with what was written.
func (r *simRank) check(id draw.SampleID) {
	if !r.bytes[id] {
		r.w.t.Fatalf("rank %d: sample %d is to be checked, and is not here", r.rank, id)
	}
	whole := !r.w.chance(r.w.cfg.spoilt)
	if !whole {
		delete(r.bytes, id)
	}
	r.step(Checked{ID: id, Whole: whole})
}

// TestStagerRecovers restarts all ranks between two epochs. With what they had in memory, they read
// as much as without the restart, plus the samples that were damaged.
func TestStagerRecovers(t *testing.T) {
	for _, sampler := range []string{"torch", "pads"} {
		for _, policy := range []string{"clairvoyant", "lru"} {
			t.Run(sampler+"/"+policy, func(t *testing.T) {
				run := func(restart, warm bool, f faults) *world {
					w := newWorld(t, worldConfig{
						seed: 7, ranks: 2, perRank: 1, batchSize: 16, samples: 2000, ahead: 3,
						sampler: sampler, policy: policy, capacity: 0.2, faults: f,
					})
					for epoch := range 3 {
						if restart && epoch == 1 {
							w.restart(warm)
						}
						w.trainEpoch()
					}
					w.settled()
					return w
				}
				calm := run(false, false, faults{})
				warm := run(true, true, faults{})
				spoilt := run(true, true, faults{spoilt: 2})
				cold := run(true, false, faults{})
				if policy == "clairvoyant" && warm.reads() > calm.reads()*103/100 {
					t.Errorf("%d reads, and %d when nothing happens", warm.reads(), calm.reads())
				}
				if warm.reads() >= spoilt.reads() || spoilt.reads() >= cold.reads() {
					t.Errorf("%d reads, %d when half is spoilt, and %d when all is",
						warm.reads(), spoilt.reads(), cold.reads())
				}
				if warm.sources[FromFallback]+warm.sources[NotHere] > 0 {
					t.Errorf("sources are %v", warm.sources)
				}
			})
		}
	}
}

// TestStagerRecoversTooMuch has less room than before: the first samples stay, the others are
// freed.
func TestStagerRecoversTooMuch(t *testing.T) {
	w := newWorld(t, worldConfig{
		seed: 1, ranks: 1, perRank: 1, batchSize: 4, samples: 100, ahead: 2, sampler: "torch",
		policy: "lru", capacity: 0.1,
	})
	r := w.ranks[0]
	var ids []draw.SampleID
	for id := range draw.SampleID(50) {
		ids = append(ids, id)
		r.bytes[id] = true
	}
	kept := map[draw.SampleID]int{}
	r.stager.store.cache.kept = func(id draw.SampleID, is bool) {
		if is {
			kept[id]++
		} else {
			kept[id]--
		}
	}
	r.step(Recovered{IDs: ids})
	for id := range draw.SampleID(50) {
		resident := r.stager.Cache().Resident(id)
		if resident != r.bytes[id] || resident != (kept[id] == 1) {
			t.Errorf("sample %d is resident %v, has bytes %v, was told %d",
				id, resident, r.bytes[id], kept[id])
		}
	}
	if n := r.stager.Cache().Len(); n < 5 || n > 12 || !r.bytes[0] || r.stager.WindowBytes() != 0 {
		t.Errorf("%d samples of 50 are kept, and %d bytes besides", n, r.stager.WindowBytes())
	}
	w.trainAll(1)
	for _, u := range r.stager.Cache().uses() {
		if kept[u.ID] != 1 {
			t.Errorf("nobody was told that sample %d stays", u.ID)
		}
		kept[u.ID] = 0
	}
	if fmt.Sprint(kept) != fmt.Sprint(map[draw.SampleID]int{}) {
		for id, n := range kept {
			if n != 0 {
				t.Errorf("sample %d is a resident, they say (%d)", id, n)
			}
		}
	}
}

// uses returns the Uses of the residents, in order of places; a LookAhead's have no scores.
func (c *Cache) uses() []Use {
	all := make([]Use, 0, c.Len())
	for p, id := range c.residents.ids {
		if q, in := c.at(id); in && q == Place(p) {
			all = append(all, c.residents.use(q))
		}
	}
	return all
}
