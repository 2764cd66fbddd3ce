package systems

import (
	"math"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// importanceHeap is iCACHE's H-cache: it keeps H-samples only, the most important ones. A newcomer
// replaces the top of the H-heap, the least important resident, if it is more important.
//
// Importance comes from the H-list pulled last. After a pull the H-heap becomes read-only and
// continues to name victims, while a shadow heap gets every newcomer and, a few per draw, all
// residents with their new importance. Once it has all residents, it becomes the H-heap.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-B and Algorithm 1, lines 4 to 18. Differs: the
// paper builds the shadow heap in a thread; here each draw adds a number of residents to it. The
// paper does not say which samples are H; here they are a share of all.
type importanceHeap struct {
	share     float64 // of all samples that are H-samples
	perDraw   int     // places added to the shadow heap per draw
	threshold float32 // least importance of an H-sample

	id         []draw.SampleID // by place
	resident   []bool
	values     [2][]float32 // importance in the heaps
	heaps      [2]*heap     // the H-heap and the shadow heap
	current    int          // which one is the H-heap
	rebuilding bool         // there is a shadow heap
	cursor     int          // the places below it are in the shadow heap
}

func newImportanceHeap(cfg PolicyConfig) *importanceHeap {
	h := &importanceHeap{
		share:     cfg.System.Value(cfg.Values, "h_share"),
		perDraw:   int(cfg.System.Value(cfg.Values, "rebuild_per_draw")),
		threshold: float32(math.Inf(-1)),
	}
	h.heaps[0] = h.newHeap(0)
	return h
}

func (h *importanceHeap) newHeap(k int) *heap {
	return newHeap(func(a, b stager.Place) bool {
		if h.values[k][a] != h.values[k][b] {
			return h.values[k][a] < h.values[k][b]
		}
		return h.id[a] < h.id[b]
	})
}

// Epoch implements stager.Lister: it pulls the H-list of an epoch. Until a sample is scored, all
// are H.
func (h *importanceHeap) Epoch(scores []float32, known bool) {
	h.threshold = float32(math.Inf(-1))
	if known {
		h.threshold = leastOf(slices.Clone(scores), h.share)
	}
	h.pull(scores)
}

// pull starts a shadow heap. list has the importance of its residents, by sample.
func (h *importanceHeap) pull(list []float32) {
	shadow := 1 - h.current
	h.heaps[shadow] = h.newHeap(shadow)
	for p, id := range h.id {
		h.values[shadow][p] = list[id]
	}
	h.rebuilding, h.cursor = true, 0
}

// rebuild adds the residents in the next places to the shadow heap, and makes it the H-heap once it
// has all residents.
func (h *importanceHeap) rebuild(places int) {
	if !h.rebuilding {
		return
	}
	for ; places > 0 && h.cursor < len(h.id); h.cursor++ {
		if p := stager.Place(h.cursor); h.resident[p] && !h.heaps[1-h.current].Has(p) {
			h.heaps[1-h.current].Push(p)
		}
		places--
	}
	if h.cursor == len(h.id) {
		h.heaps[h.current] = nil
		h.current, h.rebuilding = 1-h.current, false
	}
}

// Keeps implements stager.Gate; it is called for every draw of a sample that is not resident.
func (h *importanceHeap) Keeps(u stager.Use) bool {
	h.rebuild(h.perDraw)
	return u.Score >= h.threshold
}

func (h *importanceHeap) Admit(p stager.Place, u stager.Use) {
	for int(p) >= len(h.id) {
		h.id, h.resident = append(h.id, 0), append(h.resident, false)
		h.values[0], h.values[1] = append(h.values[0], 0), append(h.values[1], 0)
	}
	k := h.current
	if h.rebuilding {
		k = 1 - k
	}
	h.id[p], h.resident[p], h.values[k][p] = u.ID, true, u.Score
	h.heaps[k].Push(p)
}

func (h *importanceHeap) Touch(stager.Place, stager.Use) {
	h.rebuild(h.perDraw)
}

// Refresh implements stager.Policy: importance counts when the next H-list is pulled.
func (h *importanceHeap) Refresh(stager.Place, stager.Use) {}

func (h *importanceHeap) Remove(p stager.Place) {
	h.resident[p] = false
	for _, q := range h.heaps {
		if q != nil && q.Has(p) {
			q.Remove(p)
		}
	}
}

func (h *importanceHeap) Victim() (stager.Place, bool) {
	if h.heaps[h.current].Len() == 0 {
		h.rebuild(len(h.id))
	}
	return h.heaps[h.current].Min()
}

func (h *importanceHeap) Yields(victim stager.Place, newcomer stager.Use) bool {
	return newcomer.Score > h.values[h.current][victim]
}

// leastOf sorts values, which must not be empty, and returns the least value in their upper share.
func leastOf(values []float32, share float64) float32 {
	slices.Sort(values)
	upper := int(math.Ceil(share * float64(len(values))))
	return values[len(values)-min(max(upper, 1), len(values))]
}

var importanceHeapOptions = []Option{
	{
		Name: "h_share", Default: 0.7, Least: 1e-06, Most: 1,
		About: "share of H-samples, the most important ones, in the draws (icache) or in all samples, " +
			"in (0, 1]",
		Source: "chosen as in the code that iCACHE's authors published (threshold 0.7 of an " +
			"epoch's samples); the paper gives none",
	},
	{
		Name: "rebuild_per_draw", Default: 100, Least: 1, Most: 1e+09, Whole: true,
		About: "residents that the shadow heap takes in with a draw, at least 1",
		Source: "chosen: 10,000 residents are in within 100 draws; the paper states no rate of " +
			"its thread",
	},
}

var icacheHSystem = System{
	Name: "icache-h", Scorer: "loss", Sampler: "selective", Policy: "icache-h",
	NewPolicy: func(cfg PolicyConfig) stager.Policy { return newImportanceHeap(cfg) },
	NewPool:   newSelectivePool,
	About: "iCACHE's importance cache alone: the most important samples, in a heap and a " +
		"shadow heap",
	Source:  "Chen et al., iCACHE, HPCA 2023, §III-B, Algorithm 1; §V-D (+HC)",
	Options: append(importanceHeapOptions, selectiveOptions...),
}
