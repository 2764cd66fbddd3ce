package scheduler

import (
	"fmt"
	"testing"
)

// preload gives every rank the first samples that it owns, as if they lay in its memory, the last
// ids first, and one that is not its own. It returns what was kept.
func (w *world) preload(share float64) (kept map[SampleID]bool) {
	w.t.Helper()
	kept = map[SampleID]bool{}
	for _, r := range w.ranks {
		var ids []SampleID
		most, other := share*float64(w.cfg.Samples)/float64(len(w.ranks)), false
		for id := SampleID(w.cfg.Samples); id > 0; {
			id--
			if own := Owner(id, len(w.ranks)) == r.rank; own && float64(len(ids)) < most ||
				!own && !other {
				ids = append(ids, id)
				r.bytes[id] = true
				other = other || !own
			}
		}
		r.step(Preloaded{IDs: ids})
		used, room := int64(0), r.stager.cfg.CapacityBytes
		for _, id := range ids {
			keep := Owner(id, len(w.ranks)) == r.rank && used+w.size(id) <= room
			if keep {
				used += w.size(id)
				kept[id] = true
			}
			if r.stager.Cache().Resident(id) != keep || r.bytes[id] != keep {
				w.t.Fatalf("rank %d: sample %d is resident %v, has bytes %v, want %v", r.rank, id,
					r.stager.Cache().Resident(id), r.bytes[id], keep)
			}
		}
		if r.stager.WindowBytes() != 0 || used != r.stager.Cache().UsedBytes() {
			w.t.Fatalf("rank %d: the window has %d bytes, residents %d, want %d", r.rank,
				r.stager.WindowBytes(), r.stager.Cache().UsedBytes(), used)
		}
	}
	return kept
}

// foreseen checks that the next draw of every resident that is not drawn in the current epoch is
// the plan's prediction.
func (r *simRank) foreseen() {
	plan := r.stager.lanes[0].cur.Plan
	drawn := map[SampleID]bool{}
	for _, id := range plan.IDs {
		drawn[id] = true
	}
	for _, u := range r.stager.Cache().Residents() {
		if drawn[u.ID] {
			continue
		}
		score := float32(0)
		if l := r.coordinator.Ledger(); l != nil {
			score = l.Scores()[u.ID]
		}
		if want := plan.Next(u.ID, score); u.Next != want {
			r.w.t.Fatalf("rank %d: sample %d is drawn next at %v, want %v", r.rank, u.ID, u.Next,
				want)
		}
	}
}

// TestStagerPreloaded checks that what was brought in before training is a hit in the first epoch,
// in this rank's memory or in another's, and that nothing else about the run changes.
func TestStagerPreloaded(t *testing.T) {
	for _, sampler := range []string{"torch", "pads", "weighted-once"} {
		for _, policy := range []string{"clairvoyant", "lru"} {
			for _, share := range []float64{0.1, 0.9} { // less than fits, and more
				t.Run(fmt.Sprintf("%s/%s/%v", sampler, policy, share), func(t *testing.T) {
					run := func(seed uint64, share float64) (w *world, kept map[SampleID]bool) {
						w = newWorld(t, seed, 3, 2, 4, 600, 2, sampler, policy, 0.3, AssignLocal,
							faults{})
						if share > 0 {
							kept = w.preload(share)
						}
						w.plan(0, 0)
						for _, r := range w.ranks {
							r.foreseen()
						}
						w.train(0, 0, 3)
						return w, kept
					}
					// LRU may evict a sample before it is drawn: one world saves reads by chance
					worlds := map[string]int{"clairvoyant": 1, "lru": 6}[policy]
					saved, hits := 0, 0
					for seed := 7; seed < 7+worlds; seed++ {
						cold, _ := run(uint64(seed), 0)
						warm, kept := run(uint64(seed), share)
						if len(kept) < 50 {
							t.Fatalf("only %d samples are kept", len(kept))
						}
						more := cold.reads() - warm.reads()
						// each is drawn, and kept until then, unless it is placed elsewhere
						once := sampler != "pads" && policy == "clairvoyant"
						if once && 10*more < 9*len(kept) ||
							once && sampler == "torch" && more != len(kept) {
							t.Errorf("%d samples save %d reads", len(kept), more)
						}
						found := warm.sources[FromLocal] + warm.sources[FromPeer] -
							cold.sources[FromLocal] - cold.sources[FromPeer]
						if found != cold.sources[FromStorage]-warm.sources[FromStorage] ||
							policy == "clairvoyant" && warm.sources[FromPeer] == 0 {
							t.Errorf("sources are %v, cold %v", warm.sources, cold.sources)
						}
						saved, hits = saved+more, hits+found
						warm.plan(1, 0)
						warm.train(1, 0, 3)
						warm.settled()
					}
					if saved <= 0 || hits <= 0 {
						t.Errorf("%d reads are saved, and there are %d hits more", saved, hits)
					}
				})
			}
		}
	}
}
