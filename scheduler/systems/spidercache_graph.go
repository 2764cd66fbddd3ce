package systems

import (
	"fmt"
	"math"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems/hnsw"
)

// spiderGraph scores samples by their neighbours among the latest embeddings of all samples that
// one job trained on.
//
// Source: Wang et al., "SpiderCache", ICPP 2025, §4.1, Eq. 1–4. Differs: the paper gives no numbers
// for λ and α, and what it calls near in Eq. 2 depends on the unit of the embeddings. Here
// distances are in units of the root mean square distance of two samples' embeddings, so that λ and
// α mean the same for every model and epoch. The option threshold takes the constants of the
// authors' implementation (compute_score), which puts d² in place of d. A list holds neighbours of
// the node's own class, as there: §4.1 stores the node "with the highest x_same with its neighbor
// lists". A query for a sample in the index finds the sample itself, at distance 0: a sample is its
// own neighbour, so x_same is at least 1 and Eq. 4 never divides by 0. Product quantization (§5) is
// left out: it saves memory and changes distances.
type spiderGraph struct {
	labels       []int32
	index        *hnsw.Index
	threshold    float64 // a squared distance below it makes an edge; 0: see reachSquared
	reachSquared float64 // the same, in squares of the unit
	most, ef     int
	scores       []float32

	held       int       // samples in the index
	sum        []float64 // of their embeddings
	squares    float64   // the sum of their squared lengths
	neighbours []int32   // scratch
}

// newSpiderGraph panics when the embeddings' dimensions or the labels are missing, or an option is
// out of its range.
func newSpiderGraph(cfg *PoolConfig, job int) *spiderGraph {
	if cfg.Dimensions == 0 || len(cfg.Labels) != cfg.Samples {
		panic(fmt.Sprintf("systems: %s needs embeddings and labels.", cfg.System.Name))
	}
	if err := cfg.System.Check(cfg.Values); err != nil {
		panic("systems: " + err.Error() + ".")
	}
	g := &spiderGraph{
		labels: cfg.Labels, index: hnsw.New(cfg.Samples, cfg.Dimensions, cfg.Seed+int64(job)),
		reachSquared: spiderReachSquared(cfg.Value("lambda"), cfg.Value("alpha")),
		threshold:    cfg.Value("threshold"),
		most:         int(cfg.Value("neighbormax")), ef: int(cfg.Value("ef")),
		scores: make([]float32, cfg.Samples), sum: make([]float64, cfg.Dimensions),
	}
	for id := range g.scores {
		g.scores[id] = g.eq4(1, 0) // of a node without edges
	}
	return g
}

// spiderReachSquared solves Eq. 2 and 3 for the distance, so that no exponential is needed:
// exp(-λd) > α means d < -ln(α)/λ.
func spiderReachSquared(lambda, alpha float64) float64 {
	reach := -draw.Ln(alpha) / lambda
	return float64(reach * reach)
}

// take brings a new embedding into the index, if all its numbers are finite (Algorithm 1, line 14).
func (g *spiderGraph) take(id draw.SampleID, embedding []float32) {
	if !protocol.ReportedEmbedding(embedding) {
		return
	}
	node := int32(id)
	if g.index.Has(node) {
		g.count(g.index.Vector(node), -1)
	}
	g.index.Update(node, embedding)
	g.count(embedding, 1)
}

// count adds an embedding that enters the index (sign 1), or subtracts one that leaves it (-1).
func (g *spiderGraph) count(embedding []float32, sign int) {
	g.held += sign
	for k, v := range embedding {
		g.squares += float64(float64(v) * float64(v*float32(sign)))
		g.sum[k] += float64(v * float32(sign))
	}
}

// unitSquared returns the mean squared distance of two embeddings: twice the sum of their
// variances.
func (g *spiderGraph) unitSquared() float64 {
	n := float64(g.held)
	variance := g.squares / n
	for _, s := range g.sum {
		variance -= float64((s / n) * (s / n))
	}
	return 2 * variance
}

// score updates the score of a sample in the index, and returns it with the sample's neighbours of
// its own class (Algorithm 1, lines 16 and 17). The neighbours are valid until the next call.
func (g *spiderGraph) score(id draw.SampleID) (float32, []int32) {
	// A sample at distance 0 has similarity 1, and so an edge, even if all embeddings are equal.
	radius := g.threshold
	if radius == 0 {
		radius = g.reachSquared * g.unitSquared()
	}
	g.neighbours = g.index.Within(g.neighbours[:0], int32(id),
		max(float32(radius), math.SmallestNonzeroFloat32), g.most, g.ef)
	same := 0
	for i, n := range g.neighbours {
		if g.labels[n] == g.labels[id] {
			g.neighbours[i], g.neighbours[same] = g.neighbours[same], n
			same++
		}
	}
	g.scores[id] = g.eq4(same, len(g.neighbours)-same)
	return g.scores[id], g.neighbours[:same]
}

// known returns the scores of the samples that were trained on.
func (g *spiderGraph) known() []float32 {
	var known []float32
	for id, score := range g.scores {
		if g.index.Has(int32(id)) {
			known = append(known, score)
		}
	}
	return known
}

// eq4 returns ln(1/x_same + x_other/neighbormax + 1).
func (g *spiderGraph) eq4(same, other int) float32 {
	return float32(draw.Ln(1/float64(same) + float64(other)/float64(g.most) + 1))
}
