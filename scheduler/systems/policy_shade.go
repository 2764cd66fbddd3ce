package systems

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// byImportance evicts the least important resident. It is SHADE's APP, adaptive priority-aware
// prediction, and the two queues that SHADE is compared with.
//
// Source: Khan et al., "SHADE", FAST 2023, §4.2.2, Algorithm 1. Line 2: PQ is queue, in which a
// resident has the tuple <ir, af> of importance and access frequency. The ghost cache has every
// sample ever scored and its latest score, which a Use carries: Known is ghost_cache.exist, and
// Score is ghost_cache.get. Differs: Algorithm 1 scores a sample (line 5) before it looks it up
// (line 7), though the score comes from training on it. Here a sample is looked up with the score
// of its last training; otherwise all would be known and line 22 would have no use. §4.2.2 puts the
// samples "that have ever been cached" in the ghost cache, line 2 "all previously-trained"; line 6
// decides it. The paper does not say how to order equal importance: here by af, as tuples compare,
// then by id. af counts the draws since admission, as in the authors' implementation; the ghost
// cache's af decides nothing and is not kept.
type byImportance struct {
	ghost     bool // only a known sample that is at least as important displaces a resident
	frequency bool // equal importance is ordered by frequency
	residents []importance
	queue     *heap
}

// importance is the tuple <ir, af> of a resident.
type importance struct {
	id    draw.SampleID
	score float32
	draws uint32
}

func newByImportance(ghost, frequency bool) *byImportance {
	q := &byImportance{ghost: ghost, frequency: frequency}
	q.queue = newHeap(q.less)
	return q
}

func (q *byImportance) less(a, b stager.Place) bool {
	x, y := &q.residents[a], &q.residents[b]
	if x.score != y.score {
		return x.score < y.score
	}
	if q.frequency && x.draws != y.draws {
		return x.draws < y.draws
	}
	return x.id < y.id
}

// Admit implements stager.Policy: lines 10 and 18.
func (q *byImportance) Admit(p stager.Place, u stager.Use) {
	for int(p) >= len(q.residents) {
		q.residents = append(q.residents, importance{})
	}
	q.residents[p] = importance{id: u.ID, score: u.Score, draws: 1}
	q.queue.Push(p)
}

// Touch implements stager.Policy: line 8.
func (q *byImportance) Touch(p stager.Place, u stager.Use) {
	q.residents[p].draws++
	q.Refresh(p, u)
}

// Refresh implements stager.Policy: line 6; in §4.2.2 scores change "as soon as" they are known.
func (q *byImportance) Refresh(p stager.Place, u stager.Use) {
	q.residents[p].score = u.Score
	q.queue.Fix(p)
}

// Remove implements stager.Policy: line 17.
func (q *byImportance) Remove(p stager.Place) { q.queue.Remove(p) }

// Victim implements stager.Policy: line 14.
func (q *byImportance) Victim() (stager.Place, bool) { return q.queue.Min() }

// Yields implements stager.Policy: lines 12, 13 and 16.
func (q *byImportance) Yields(victim stager.Place, newcomer stager.Use) bool {
	return !q.ghost || newcomer.Known && newcomer.Score >= q.residents[victim].score
}

func newAPP(PolicyConfig) stager.Policy { return newByImportance(true, true) }

const shadeSource = "Khan et al., SHADE, FAST 2023"

var shadeSystem = System{
	Name: "shade", Live: liveLearned, Scorer: "logrank", Sampler: "pads", Policy: "app",
	About: "keeps what has the highest loss rank in its mini-batch; draws by rank, and more " +
		"often what it keeps",
	Source:  shadeSource + ", §4",
	Options: shadeOptions, NewPolicy: newAPP, NewPool: newShadePool,
}
