package systems

import (
	"rankpool/scheduler/stager"
)

// The variants in SHADE's §6.2 give a whole mini-batch one coarse score and draw by it. Each has a
// different policy.
//
// Differs: the paper has one sentence on each variant. Here pq and pqlfu are APP, except that they
// admit every newcomer, and that pq orders equal scores by id alone. Their scores change as soon as
// they are reported, as APP's do.

func newPQ(PolicyConfig) stager.Policy { return newByImportance(false, false) }

func newPQLFU(PolicyConfig) stager.Policy { return newByImportance(false, true) }

// evictRandom evicts a resident chosen uniformly at random, and keeps every newcomer.
type evictRandom struct {
	random  random
	places  []stager.Place // of the residents
	where   []int          // by place of a resident, its index in places
	chosen  int            // index of the victim
	pending bool           // chosen must be drawn again
}

func newEvictRandom(cfg PolicyConfig) stager.Policy {
	return &evictRandom{random: newRandom(cfg.Seed), pending: true}
}

func (e *evictRandom) Admit(p stager.Place, _ stager.Use) {
	for int(p) >= len(e.where) {
		e.where = append(e.where, 0)
	}
	e.where[p], e.pending = len(e.places), true
	e.places = append(e.places, p)
}

func (e *evictRandom) Touch(stager.Place, stager.Use) {}

func (e *evictRandom) Refresh(stager.Place, stager.Use) {}

func (e *evictRandom) Remove(p stager.Place) {
	last := len(e.places) - 1
	i, moved := e.where[p], e.places[last]
	e.places[i], e.where[moved] = moved, i
	e.places, e.pending = e.places[:last], true
}

func (e *evictRandom) Victim() (stager.Place, bool) {
	if len(e.places) == 0 {
		return 0, false
	}
	if e.pending {
		e.chosen, e.pending = e.random.below(len(e.places)), false
	}
	return e.places[e.chosen], true
}

func (e *evictRandom) Yields(stager.Place, stager.Use) bool { return true }

// shadeVariant returns a variant of §6.2, which about describes.
func shadeVariant(
	name, policy, about string, newPolicy func(PolicyConfig) stager.Policy,
) System {
	return System{
		Name: name, Scorer: "batchloss", Sampler: "weighted", Policy: policy, About: about,
		Source: shadeSource + ", §6.2", NewPolicy: newPolicy,
	}
}

var (
	shadePQLFUSystem = shadeVariant("shade-pqlfu", "pqlfu",
		"coarse score; evicts the lowest score, of equal ones the least frequently drawn", newPQLFU)
	shadePQSystem = shadeVariant("shade-pq", "pq", "coarse score; evicts the lowest score",
		newPQ)
	shadeLRUSystem = shadeVariant("shade-lru", "lru",
		"coarse score; evicts the sample drawn longest ago", newLRU)
	shadeLFUSystem = shadeVariant("shade-lfu", "lfu",
		"coarse score; evicts the least frequently drawn sample", newLFU)
	shadeRandSystem = shadeVariant("shade-rand", "random", "coarse score; evicts any sample",
		newEvictRandom)
	shadeAPPSystem = shadeVariant("shade-app", "app",
		"coarse score; evicts as shade does, without its ranks and its repetition", newAPP)
)
