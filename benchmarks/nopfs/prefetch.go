package nopfs

import (
	"slices"

	"rankpool/scheduler/draw"
)

// prefetchers are those of NoPFS: while training runs, each tier of each worker is filled by its
// own threads, in the order in which its samples are first used.
//
// Source: paper, section 5.1: "A worker fetches samples with the largest r_k to its fastest storage
// class, and so on for slower classes until either it has cached the entire dataset or filled its
// local storage"; "we always fetch the samples in order of access". Differs: they always read the
// PFS, even if another worker has the sample by then.
type prefetchers struct {
	assigned [][]uint8 // [worker][sample]: the tier that will hold it, 0 for none
	queues   [][]queue // [worker][tier]
}

// A queue is what one tier still has to fetch.
type queue struct {
	ids  []draw.SampleID
	busy float64 // when its threads have read what they began
}

// startPrefetchers assigns samples to the workers' tiers.
func startPrefetchers(t *training) string {
	t.hold()
	f := &prefetchers{assigned: make([][]uint8, t.Workers), queues: make([][]queue, t.Workers)}
	uses, order := t.countUses()
	for w := range uses {
		f.assigned[w] = t.assign(uses[w], order[w])
		f.queues[w] = make([]queue, len(t.CapacityMB))
		for _, id := range order[w] {
			if tier := f.assigned[w][id]; tier > 0 {
				f.queues[w][tier].ids = append(f.queues[w][tier].ids, id)
			}
		}
	}
	t.fill = f
	return ""
}

// countUses returns how often each worker uses each sample in the whole training, and what it uses
// in the order of first use.
func (t *training) countUses() (uses [][]uint16, order [][]draw.SampleID) {
	sampler, err := t.sampler()
	if err != nil {
		panic("nopfs: the sampler was made before: " + err.Error() + ".")
	}
	uses, order = make([][]uint16, t.Workers), make([][]draw.SampleID, t.Workers)
	for w := range uses {
		uses[w] = make([]uint16, t.Samples)
	}
	for epoch := range t.Epochs {
		for j, id := range sampler.Draw(epoch, nil).IDs {
			w := j % t.Workers
			if uses[w][id] == 0 {
				order[w] = append(order[w], id)
			}
			uses[w][id]++
		}
	}
	return uses, order
}

// assign fills a worker's tiers with what it uses most, in a tie with what it uses first.
func (t *training) assign(uses []uint16, order []draw.SampleID) []uint8 {
	assigned := make([]uint8, t.Samples)
	byUses := slices.Clone(order)
	slices.SortStableFunc(byUses, func(a, b draw.SampleID) int {
		return int(uses[b]) - int(uses[a])
	})
	free := slices.Clone(t.CapacityMB)
	for _, id := range byUses {
		for tier := 1; tier < len(free); tier++ {
			if take(&free[tier], t.mb(id)) {
				assigned[id] = uint8(tier)
				break
			}
		}
	}
	return assigned
}

// advance adds to the tiers what they have fetched by the time when the first of the workers begins
// to read for the batch.
func (f *prefetchers) advance(t *training) {
	now := t.workers[0].staged
	for _, w := range t.workers {
		now = min(now, w.staged)
	}
	for w := range f.queues {
		for tier := range f.queues[w] {
			f.queues[w][tier].advance(t, w, tier, now)
		}
	}
}

func (q *queue) advance(t *training, w, tier int, now float64) {
	for len(q.ids) > 0 {
		id := q.ids[0]
		if t.held[w][id] == 0 {
			end := q.busy + t.fetchAlone(t.mb(id))/t.Machine.Tiers[tier].Threads
			if end > now {
				return
			}
			q.busy = end
			t.held[w][id] = uint8(tier)
			t.out.PFSMB += t.mb(id)
		}
		q.ids = q.ids[1:]
	}
}

// keepAssigned keeps in a tier what the staging threads read before the tier's own threads got to
// it.
//
// Source: paper, section 5.2.2: a prefetcher that finds a sample missing retrieves and caches it.
func keepAssigned(t *training, w int, id draw.SampleID) {
	if t.held[w][id] == 0 {
		t.held[w][id] = t.fill.assigned[w][id]
	}
}
