package systems

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems/hnsw"
)

// spiderTest makes a pool of spidercache over samples of one byte and embeddings of one dimension,
// which learns batch by batch unless values say otherwise. All labels are 0 if nil is given.
func spiderTest(samples int, capacity int64, labels []int32, values Values) *spiderPool {
	if labels == nil {
		labels = make([]int32, samples)
	}
	one := func(draw.SampleID) int64 { return 1 }
	all := Values{"by_batch": 1}
	maps.Copy(all, values)
	return newSpiderPool(PoolConfig{
		System: &spiderCacheSystem, Values: all, Samples: samples, Jobs: 1, Ranks: 1, Epochs: 10,
		GlobalBatch: samples, Seed: 1,
		Memory: NewMemory(samples, 1, capacity, one), Labels: labels, Dimensions: 1,
	}).(*spiderPool)
}

func spiderBatch(ids ...draw.SampleID) *Batch {
	return &Batch{IDs: ids, Rank: make([]int32, len(ids)), Next: make([]float64, len(ids))}
}

// spiderReport reports that samples were trained on, at the given places.
func spiderReport(
	place map[draw.SampleID]float32, ids ...draw.SampleID,
) protocol.Report {
	r := protocol.Report{IDs: ids, Losses: make([]float32, len(ids))}
	for _, id := range ids {
		r.Embeddings = append(r.Embeddings, []float32{place[id]})
	}
	return r
}

// takeAll takes the embeddings of a report.
func takeAll(take func(draw.SampleID, []float32), r protocol.Report) {
	for i, id := range r.IDs {
		take(id, r.Embeddings[i])
	}
}

// TestSpiderCacheEq1 checks that distances are Euclidean, squared.
func TestSpiderCacheEq1(t *testing.T) {
	if got := hnsw.Squared([]float32{1, 2, 3}, []float32{4, 6, 3}); got != 25 {
		t.Errorf("the squared distance is %v, want 5²", got)
	}
}

// TestSpiderCacheEq2and3 compares the edges by squared distances with those by exponentials.
func TestSpiderCacheEq2and3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lambda, alpha := rapid.Float64Range(0.01, 20).Draw(t, "lambda"),
			rapid.Float64Range(0.01, 0.99).Draw(t, "alpha")
		d := rapid.Float64Range(0, 5).Draw(t, "d")
		similarity := math.Exp(-lambda * d)
		if math.Abs(similarity-alpha) < 1e-9 {
			return
		}
		if edge := d*d < spiderReachSquared(lambda, alpha); edge != (similarity > alpha) {
			t.Errorf("similarity %v, α %v: edge is %v", similarity, alpha, edge)
		}
	})
}

// TestSpiderCacheEq4 checks the scores of the four states of Fig. 8(b), and their order.
func TestSpiderCacheEq4(t *testing.T) {
	g := spiderTest(2, 2, nil, nil).graphs[0]
	scores := map[string]float32{}
	for _, c := range []struct {
		state       string
		same, other int
	}{
		{"well-classified", 100, 0},
		{"boundary", 100, 100},
		{"isolated", 1, 0},
		{"misclassified", 1, 100},
	} {
		scores[c.state] = g.eq4(c.same, c.other)
		if want := math.Log(1/float64(c.same) + float64(c.other)/500 + 1); math.Abs(
			float64(scores[c.state])-want) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.state, scores[c.state], want)
		}
	}
	for _, medium := range []string{"boundary", "isolated"} {
		if !(scores["well-classified"] < scores[medium] &&
			scores[medium] < scores["misclassified"]) {
			t.Errorf("%s is not in the middle of %v", medium, scores)
		}
	}
	if g.scores[1] != float32(math.Ln2) {
		t.Errorf("a sample without edges has the score %v, want ln(1/1 + 0 + 1)", g.scores[1])
	}
}

// TestSpiderCacheScores counts x_same and x_other by hand: four samples at 0 to 3, one of another
// class among them, and one far away.
func TestSpiderCacheScores(t *testing.T) {
	place := map[draw.SampleID]float32{0: 0, 1: 1, 2: 2, 3: 3, 4: 100}
	for _, c := range []struct {
		values     Values
		score      float64
		neighbours []int32
	}{
		// The unit is √2 times the standard deviation: 56 from 0, 1, 2, 3, 100.
		{Values{"alpha": math.Exp(-2.5 / 55.75)}, math.Log(1/2. + 1/500. + 1), []int32{0, 2}},
		{
			Values{"alpha": math.Exp(-2.5 / 55.75), "neighbormax": 2},
			math.Log(1/1. + 1/2. + 1),
			[]int32{0},
		},
		{
			Values{"lambda": 2, "alpha": math.Exp(-2.5 / 55.75)},
			math.Log(1/1. + 1/500. + 1),
			[]int32{0},
		},
		// the squares of the distances are 1, 4 and 9
		{Values{"threshold": 3.9}, math.Log(1/1. + 1/500. + 1), []int32{0}},
		{Values{"threshold": 4.1}, math.Log(1/2. + 1/500. + 1), []int32{0, 2}},
		{Values{"alpha": math.Exp(-0.5 / 55.75)}, math.Log(2), []int32{0}},
	} {
		g := spiderTest(5, 5, []int32{0, 1, 0, 0, 0}, c.values).graphs[0]
		// where they were before
		takeAll(g.take, spiderReport(map[draw.SampleID]float32{0: 50, 1: 60}, 0, 1))
		takeAll(g.take, spiderReport(place, 0, 1, 2, 3, 4))
		score, neighbours := g.score(0)
		if math.Abs(float64(score)-c.score) > 1e-6 || !slices.Equal(neighbours, c.neighbours) ||
			score != g.scores[0] {
			t.Errorf("%v: score %v with %v, want %v with %v", c.values, score, neighbours, c.score,
				c.neighbours)
		}
	}
}

// TestSpiderCacheEqualEmbeddings has a unit of 0: similarity is 1 everywhere.
func TestSpiderCacheEqualEmbeddings(t *testing.T) {
	g := spiderTest(3, 3, nil, nil).graphs[0]
	takeAll(g.take, spiderReport(map[draw.SampleID]float32{}, 0, 1, 2))
	if _, neighbours := g.score(1); len(neighbours) != 3 {
		t.Errorf("the neighbours are %v", neighbours)
	}
}

// TestSpiderCacheFigure9 has the figure's samples, importance and cache contents. f, i and j are
// not in the batch.
func TestSpiderCacheFigure9(t *testing.T) {
	const a, b, c, d, e, f, g, h, i, j = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	p := spiderTest(10, 4, nil, Values{"r_start": 0.5})
	scores := p.graphs[0].scores
	scores[a], scores[b], scores[c], scores[d], scores[e] = 0.4, 0.2, 0.5, 0.6, 0.3
	p.Batch(spiderBatch(a, e), make([]Answer, 2))
	p.homophily.Push(g, []int32{g, f}, 0)
	p.homophily.Push(h, []int32{h, c}, 0)
	place := map[draw.SampleID]float32{a: 100, b: 0, d: 200, h: 300, i: 1, j: 2}
	takeAll(p.graphs[0].take, spiderReport(place, i, j))

	batch, answers := spiderBatch(a, b, c, d), make([]Answer, 4)
	p.Batch(batch, answers)
	want := []Answer{
		{Served: a},             // case 1
		{Served: b, Read: true}, // case 2
		{Served: h},             // case 3
		{Served: d, Read: true}, // case 4
	}
	if !slices.Equal(answers, want) {
		t.Errorf("answers are %v, want %v", answers, want)
	}
	if in := p.importance.Resident; !in(a) || in(b) || in(c) || !in(d) || in(e) {
		t.Error("the importance cache does not hold a and d alone")
	}
	p.Trained(batch, spiderReport(place, a, b, h, d))
	if p.homophily.Has(g) || !p.homophily.Has(h) || !p.homophily.Has(b) {
		t.Error("b did not take the place of g in the homophily cache")
	}
	if s, ok := p.homophily.Serves(i); !ok || s != b {
		t.Error("b is not served for its neighbour i")
	}
	if _, ok := p.homophily.Serves(f); ok {
		t.Error("g went, and is served for f")
	}
	if p.memory.UsedBytes() != 4 {
		t.Errorf("%d bytes are used", p.memory.UsedBytes())
	}
}

// TestSpiderCacheAlgorithm1Line18 checks that the first of the nodes with the highest degree is
// chosen, and none that the importance cache holds.
func TestSpiderCacheAlgorithm1Line18(t *testing.T) {
	place := map[draw.SampleID]float32{0: 200, 1: 100, 2: 101, 3: 0, 4: 1, 5: 2}
	for _, c := range []struct {
		important []draw.SampleID
		want      draw.SampleID
	}{{[]draw.SampleID{0, 1, 2}, 3}, {[]draw.SampleID{3, 4, 5}, 1}} {
		p := spiderTest(6, 4, nil, Values{"r_start": 0.75})
		for _, id := range c.important {
			p.graphs[0].scores[id] = 2
		}
		batch := spiderBatch(0, 1, 2, 3, 4, 5)
		p.Batch(batch, make([]Answer, 6))
		p.Trained(batch, spiderReport(place, batch.IDs...))
		if len(p.homophily.queue) != 1 || p.homophily.queue[0].id != c.want {
			t.Errorf("with %v in the importance cache, the homophily cache has %v, want %v",
				c.important, p.homophily.queue, c.want)
		}
	}
}

// TestSpiderCacheNodesOfProcesses checks that the homophily cache gets the node with the highest
// degree of each process's part of a batch, whichever rank the process is on.
func TestSpiderCacheNodesOfProcesses(t *testing.T) {
	one := func(draw.SampleID) int64 { return 1 }
	for _, c := range []struct {
		ranks, trainersPerRank int
		homes                  map[draw.SampleID]int
	}{
		{2, 1, map[draw.SampleID]int{2: 0, 1: 1}},
		{1, 2, map[draw.SampleID]int{2: 0, 1: 0}},
	} {
		p := newSpiderPool(PoolConfig{
			System: &spiderCacheSystem, Values: Values{"r_start": 0, "by_batch": 1}, Samples: 6,
			Jobs: 1, Ranks: c.ranks, TrainersPerRank: c.trainersPerRank,
			Epochs: 10, GlobalBatch: 6, Seed: 1,
			Memory: NewMemory(6, c.ranks, 6, one), Labels: make([]int32, 6), Dimensions: 1,
		}).(*spiderPool)
		batch := spiderBatch(0, 1, 2, 3, 4, 5)
		for i := range batch.Rank {
			batch.Rank[i] = int32(i % 2 / c.trainersPerRank)
		}
		p.Batch(batch, make([]Answer, 6))
		p.Trained(
			batch,
			spiderReport(map[draw.SampleID]float32{0: 200, 1: 0, 2: 100, 3: 1, 4: 101, 5: 2},
				batch.IDs...))
		homes := map[draw.SampleID]int{}
		for _, n := range p.homophily.queue {
			homes[n.id] = p.memory.Home(n.id)
		}
		if !maps.Equal(homes, c.homes) {
			t.Errorf("the homophily cache has nodes at ranks %v, want %v", homes, c.homes)
		}
	}
}

// TestSpiderCacheSameClass checks that a sample is served only for those of its own class.
func TestSpiderCacheSameClass(t *testing.T) {
	substituted := 0
	trace := goldenTrace{values: Values{"alpha": 0.5}}
	trace.setDefaults()
	var d *goldenDriver
	trace.check = func(t *testing.T, b *Batch, answers []Answer) {
		for i, a := range answers {
			if a.Served != b.IDs[i] {
				substituted++
			}
			if d.labels[a.Served] != d.labels[b.IDs[i]] {
				t.Fatalf("%d is served for %d, which is of another class", a.Served, b.IDs[i])
			}
		}
	}
	d = newGoldenDriver(t, &spiderCacheSystem, trace)
	for epoch := range trace.epochs {
		d.epoch(epoch)
	}
	if substituted == 0 {
		t.Error("no draw is substituted")
	}
}

// TestSpiderCacheAlgorithm1Line17 checks that a resident's place follows its new score, and that
// the sampler gets the score.
func TestSpiderCacheAlgorithm1Line17(t *testing.T) {
	p := spiderTest(5, 2, nil, Values{"r_start": 1})
	batch := spiderBatch(0, 1)
	p.Batch(batch, make([]Answer, 2))
	// Samples 1 and 2 become neighbours, 0 stays alone.
	place := map[draw.SampleID]float32{0: 100, 1: 0, 2: 0}
	takeAll(p.graphs[0].take, spiderReport(place, 2))
	p.Trained(batch, spiderReport(place, 0, 1))
	name, weights := p.Resample(0, 1, nil)
	if want := []float32{
		math.Ln2, float32(draw.Ln(1.5)), math.Ln2, math.Ln2,
		math.Ln2,
	}; name != "weighted" || !slices.Equal(weights, want) {
		t.Errorf("the sampler %s gets %v, want %v", name, weights, want)
	}
	p.Batch(spiderBatch(3), make([]Answer, 1))
	if in := p.importance.Resident; !in(0) || in(1) || !in(3) {
		t.Error("3 did not take the place of 1, whose score fell")
	}
	p.Batch(spiderBatch(4), make([]Answer, 1))
	if p.importance.Resident(4) {
		t.Error("4 took a place although no score is lower than its own")
	}
	weights[3] = 9
	if p.graphs[0].scores[3] == 9 {
		t.Error("the weights are the pool's own scores")
	}
}

// TestSpiderCacheRepetition checks that draws of samples in the importance cache are repeated, in
// place of others, up to a share of the epoch.
func TestSpiderCacheRepetition(t *testing.T) {
	ids := []draw.SampleID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, c := range []struct {
		values Values
		most   int // of 0, 1 and 2, which are there
	}{
		{Values{}, 9},
		{Values{"repetition": 2}, 6},
		{Values{"max_share": 0.8}, 8},
		{Values{"repetition": 1}, 3},
	} {
		c.values["r_start"] = 0.75
		p := spiderTest(10, 4, nil, c.values)
		p.Batch(spiderBatch(0, 1, 2), make([]Answer, 3))
		p.homophily.Push(3, []int32{3}, 0)
		got, times := p.Repeat(0, 1, ids), make([]int, 10)
		for _, id := range got {
			times[id]++
		}
		here := times[0] + times[1] + times[2]
		if len(got) != 10 || here != c.most || slices.Max(times[:3])-slices.Min(times[:3]) > 1 ||
			slices.Max(times[3:]) > 1 {
			t.Errorf("%v: %v were repeated as %v", c.values, ids, got)
		}
	}
	if !slices.IsSorted(ids) {
		t.Error("the draws were changed")
	}
}

// TestSpiderCacheDrawnLearns checks that a sample for which another one is served gets that one's
// embedding, which itself keeps its own, and is not added to the homophily cache.
func TestSpiderCacheDrawnLearns(t *testing.T) {
	for _, byBatch := range []float64{0, 1} {
		p := spiderTest(4, 4, nil, Values{"by_batch": byBatch, "r_start": 0})
		place := map[draw.SampleID]float32{0: 0, 1: 5, 2: 100}
		p.Trained(spiderBatch(0, 1, 2), spiderReport(place, 0, 1, 2))
		p.homophily.Push(2, []int32{1, 2}, 0)
		answers := make([]Answer, 1)
		if p.Batch(spiderBatch(1), answers); answers[0].Served != 2 {
			t.Fatalf("%d is served for 1", answers[0].Served)
		}
		place[2] = 77
		p.Trained(spiderBatch(1), spiderReport(place, 2))
		of := func(id int32) float32 {
			if byBatch == 1 {
				return p.graphs[0].index.Vector(id)[0]
			}
			return p.epochs.latest[0].of(draw.SampleID(id))[0]
		}
		if of(1) != 77 || of(2) != 100 || p.homophily.Has(1) {
			t.Errorf("by_batch=%v: embeddings %v and %v", byBatch, of(1), of(2))
		}
	}
}

// TestSpiderCacheHomophily checks a queue of samples with overlapping lists.
func TestSpiderCacheHomophily(t *testing.T) {
	h := newHomophily(NewMemory(10, 1, 10, func(id draw.SampleID) int64 { return int64(id) }),
		10)
	h.Resize(6)
	serves := func(want ...draw.SampleID) {
		t.Helper()
		for id, w := range want {
			s, ok := h.Serves(draw.SampleID(id))
			if !ok {
				s = 0
			}
			if s != w {
				t.Errorf("%d is served for %d, want %d", s, id, w)
			}
		}
	}
	h.Push(1, []int32{1, 2, 5, 6}, 0)
	h.Push(2, []int32{1, 2, 6, 7}, 0)
	serves(0, 1, 2, 0, 0, 1, 2, 2) // 1 and 2 serve themselves, the newer list has 6
	h.Push(7, []int32{7, 8}, 0)    // is larger than the cache
	serves(0, 1, 2, 0, 0, 1, 2, 2)
	h.Push(3, []int32{3}, 0)
	serves(0, 1, 2, 3, 0, 1, 2, 2)
	h.Push(4, []int32{4, 5}, 0) // 1 and 2 make room for 4 bytes, 3 goes too: 6 bytes hold no 7
	serves(0, 0, 0, 0, 4, 4, 0, 0)
	if h.usedBytes != 4 || h.memory.UsedBytes() != 4 {
		t.Errorf("%d bytes are used, %d in memory", h.usedBytes, h.memory.UsedBytes())
	}
	h.Resize(3)
	serves(0, 0, 0, 0, 0, 0, 0, 0)
}

// TestSpiderCacheEq5 checks that the ratio stays while the deviation of the scores rises, and falls
// once its smoothed slope is negative, as in Eq. 8 and Fig. 11. It never goes back, whatever the
// deviation does then and even if u grows again.
func TestSpiderCacheEq5(t *testing.T) {
	deviations := func(values ...float64) []float64 {
		c := newSpiderRatio(0.9, 0.8, 0.01, len(values)+1)
		var ratios []float64
		for i, d := range values {
			// accuracy goes up and down, and u with it
			c.observe([]float32{[]float32{0, 2}[i%2], 2, 2, 2})
			ratios = append(ratios, c.next(i+1, []float32{float32(1 - d), float32(1 + d)}))
		}
		return ratios
	}
	for _, r := range deviations(0.1, 0.2, 0.15, 0.3, 0.35, 0.4, 0.38, 0.5, 0.6) {
		if r != 0.9 {
			t.Errorf("the ratio moved to %v while the deviation rose", r)
		}
	}
	for name, series := range map[string][]float64{
		"falls with noise": {0.2, 0.5, 0.4, 0.42, 0.3, 0.35, 0.28, 0.3, 0.2, 0.26, 0.1, 0.15},
		"rises again":      {0.5, 0.4, 0.3, 0.25, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9},
	} {
		ratios := deviations(series...)
		if !slices.IsSortedFunc(ratios, func(a, b float64) int { return cmp.Compare(b, a) }) {
			t.Errorf("%s: the ratio rises in %v", name, ratios)
		}
		if last := ratios[len(ratios)-1]; ratios[3] != 0.9 || last > 0.83 || last < 0.8 {
			t.Errorf(
				"%s: the ratios are %v, want 0.9 while the window fills and near 0.8 at the end",
				name, ratios)
		}
	}
}

// TestSpiderCacheAccuracy checks the share of losses below ln 2 in each epoch. Losses that are not
// reported do not count.
func TestSpiderCacheAccuracy(t *testing.T) {
	c := newSpiderRatio(0.9, 0.8, 0.01, 10)
	c.observe([]float32{0, 0.6, 0.7})
	c.observe([]float32{float32(math.NaN()), 3})
	c.next(1, []float32{1})
	c.observe([]float32{0.1})
	c.next(2, []float32{1})
	c.next(3, []float32{1})
	if want := []float64{0.5, 1, 0}; !slices.Equal(c.accuracies, want) {
		t.Errorf("the accuracies are %v, want %v", c.accuracies, want)
	}
	for epoch, told := range []float32{0.25, unknown, 0.75} { // measured ones are in their place
		c.told = told
		c.observe([]float32{0.1})
		c.next(4+epoch, []float32{1})
	}
	if want := []float64{0.25, 0.75}; !slices.Equal(c.accuracies, want) {
		t.Errorf("with measured ones the accuracies are %v, want %v", c.accuracies, want)
	}
}

// TestSpiderCacheSavitzkyGolay checks what defines the filter of §4.3: it leaves parabolas
// unchanged, and a pulse gives the published weights of five points.
func TestSpiderCacheSavitzkyGolay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rapid.IntRange(-9, 9).Draw(t, "a"), rapid.IntRange(-9, 9).Draw(t, "b"),
			rapid.IntRange(-9, 9).Draw(t, "c")
		series := make([]float64, rapid.IntRange(0, 12).Draw(t, "length"))
		for i := range series {
			series[i] = float64(a*i*i + b*i + c)
		}
		for i, s := range savitzkyGolay(series) {
			if math.Abs(s-series[i]) > 1e-9 {
				t.Errorf("%v became %v at %d", series, s, i)
			}
		}
	})
	pulse := []float64{0, 0, 0, 0, 35, 0, 0, 0, 0}
	if got, want := savitzkyGolay(pulse), []float64{0, 0, -3, 12, 17, 12, -3, 0, 0}; got[2] != -3 ||
		!slices.Equal(got[2:7], want[2:7]) {
		t.Errorf("a pulse becomes %v, want %v", got, want)
	}
	if got := savitzkyGolay([]float64{0, 0, 0, 0, 35})[4]; got != 31 {
		t.Errorf("a pulse at the end becomes %v, want 31", got)
	}
}

func TestSpiderCacheEq6(t *testing.T) {
	for _, c := range []struct {
		smooth []float64
		want   float64
	}{
		{[]float64{5}, 0},
		{[]float64{1, 4}, 3},
		{[]float64{9, 1, 2, 3, 5, 8, 11}, 2}, // (11-1)/5
	} {
		if got := spiderGrowth(c.smooth); got != c.want {
			t.Errorf("the growth of %v is %v, want %v", c.smooth, got, c.want)
		}
		sum, m := 0.0, min(5, len(c.smooth)-1)
		for i := range m {
			sum += c.smooth[len(c.smooth)-m+i] - c.smooth[len(c.smooth)-m+i-1]
		}
		if m > 0 && math.Abs(sum/float64(m)-c.want) > 1e-12 {
			t.Errorf("the sum of Eq. 6 is %v, want %v", sum/float64(m), c.want)
		}
	}
}

func TestSpiderCacheEq7(t *testing.T) {
	for _, c := range []struct{ growth, want float64 }{
		{0, 0},
		{0.01, 0.5},
		{0.03, 0.75},
		{1e9, 1},
		{-1, 0},
	} {
		if got := spiderPenalty(c.growth, 0.01); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("growth %v: u is %v, want %v", c.growth, got, c.want)
		}
	}
}

// TestSpiderCacheEq8 checks the ends of Fig. 11, and compares with math.Pow between them.
func TestSpiderCacheEq8(t *testing.T) {
	if first, last := spiderImpRatio(0.9, 0.8, 0, 0.5),
		spiderImpRatio(0.9, 0.8, 1, 0.5); first != 0.9 || math.Abs(last-0.8) > 1e-12 {
		t.Errorf("the ratio goes from %v to %v", first, last)
	}
	rapid.Check(t, func(t *rapid.T) {
		elapsed, u := rapid.Float64Range(0, 1).Draw(t, "t/T"),
			rapid.Float64Range(0, 0.999).Draw(t, "u")
		got, want := spiderImpRatio(0.9, 0.8, elapsed, u), 0.9-0.1*math.Pow(elapsed, 1+u)
		if math.Abs(got-want) > 1e-10 {
			t.Errorf("the ratio is %v, want %v", got, want)
		}
	})
}

// TestSpiderCacheRatio checks that both regions follow the ratio, and that only job 0 moves it.
func TestSpiderCacheRatio(t *testing.T) {
	p := spiderTest(20, 10, nil, nil)
	bytes := func() [2]int64 {
		return [2]int64{p.importance.UsedBytes(), p.homophily.capacityBytes}
	}
	batch := spiderBatch(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	p.Begin(0, 0, nil)
	p.Batch(batch, make([]Answer, 10))
	if got := bytes(); got != [2]int64{9, 1} {
		t.Fatalf("at the start, used and free are %v", got)
	}
	p.Begin(0, 1, nil) // nothing was trained since
	p.trained, p.ratio.active = true, true
	p.Begin(1, 9, nil)
	if got := bytes(); got != [2]int64{9, 1} {
		t.Errorf("job 1 moved the ratio: %v", got)
	}
	p.Begin(0, 10, nil)
	if got := bytes(); got != [2]int64{8, 2} {
		t.Errorf("at the end, used and free are %v", got)
	}
}

func TestSpiderCacheNeedsEmbeddings(t *testing.T) {
	for name, f := range map[string]func(){
		"no labels": func() {
			newSpiderImpPool(
				PoolConfig{
					System: &spiderCacheImpSystem, Samples: 2, Jobs: 1, Dimensions: 1,
					Memory: NewMemory(2, 1, 2, nil),
				})
		},
		"no dimensions": func() {
			newSpiderImpPool(
				PoolConfig{
					System: &spiderCacheImpSystem, Samples: 2, Jobs: 1,
					Labels: make([]int32, 2), Memory: NewMemory(2, 1, 2, nil),
				})
		},
		"a report without embeddings": func() {
			spiderTest(2, 2, nil, nil).Trained(spiderBatch(0),
				protocol.Report{IDs: []draw.SampleID{0}})
		},
		"alpha 1": func() { spiderTest(2, 2, nil, Values{"alpha": 1}) },
		"gamma 0": func() { spiderTest(2, 2, nil, Values{"gamma": 0}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a pool was made with %s", name)
				}
			}()
			f()
		}()
	}
	for _, s := range []System{spiderCacheSystem, spiderCacheImpSystem} {
		if !s.NeedsEmbeddings || !s.NeedsLabels {
			t.Errorf("%s does not say what it needs", s.Name)
		}
	}
}

// TestSpiderCacheAnyTrace draws at random with samples of different sizes: memory holds what the
// regions hold, no sample is in both, answers are legal, and a sample that is served for another
// was its neighbour when it entered the homophily cache.
func TestSpiderCacheAnyTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const samples = 30
		jobs, ranks := rapid.IntRange(1, 2).Draw(t, "jobs"), rapid.IntRange(1, 3).Draw(t, "ranks")
		memory := NewMemory(samples, ranks, int64(rapid.IntRange(0, 60).Draw(t, "capacity")),
			func(id draw.SampleID) int64 { return 1 + int64(id%5) })
		system := []*System{
			&spiderCacheSystem,
			&spiderCacheImpSystem,
		}[rapid.IntRange(0, 1).Draw(t, "system")]
		p := system.NewPool(PoolConfig{
			System: system, Values: Values{"alpha": 0.5}, Samples: samples, Jobs: jobs,
			Ranks: ranks, Epochs: 5, GlobalBatch: 6, Seed: 1, Memory: memory,
			Labels: make([]int32, samples), Dimensions: 2,
		}).(*spiderPool)
		for epoch := range 5 {
			for job := range jobs {
				p.Begin(job, epoch, nil)
			}
			for number := range 8 {
				b := &Batch{
					Job: number % jobs, Epoch: epoch, Number: number,
					IDs: make([]draw.SampleID, 6), Rank: make([]int32, 6),
					Next: make([]float64, 6),
				}
				for i := range b.IDs {
					b.IDs[i], b.Rank[i] = draw.SampleID(
						rapid.IntRange(0, samples-1).Draw(t, "id")), int32(i%ranks)
				}
				answers := make([]Answer, len(b.IDs))
				lists, before := spiderLists(p), make([]bool, samples)
				for id := range before {
					before[id] = memory.Has(draw.SampleID(id))
				}
				p.Batch(b, answers)
				r := protocol.Report{}
				for i, a := range answers {
					if a.Served != b.IDs[i] && (a.Read ||
						!slices.Contains(lists[a.Served], int32(b.IDs[i]))) {
						t.Fatalf("%d was drawn and got %v; lists are %v", b.IDs[i], a, lists)
					}
					if read := slices.Contains(answers[:i],
						Answer{Served: a.Served, Read: true}); !a.Read && !before[a.Served] &&
						!read {
						t.Fatalf("%d is served from memory, where it is not", a.Served)
					}
					r.IDs, r.Losses = append(r.IDs, a.Served),
						append(r.Losses, float32(rapid.IntRange(0, 2).Draw(t, "loss")))
					r.Embeddings = append(r.Embeddings,
						[]float32{
							float32(rapid.IntRange(0, 9).Draw(t, "x")),
							float32(a.Served % 3),
						})
				}
				p.Trained(b, r)
				spiderCheck(t, p)
			}
		}
	})
}

// spiderLists returns the neighbour lists of the homophily cache, by node.
func spiderLists(p *spiderPool) map[draw.SampleID][]int32 {
	lists := map[draw.SampleID][]int32{}
	for _, n := range p.homophily.queue {
		lists[n.id] = n.neighbours
	}
	return lists
}

func spiderCheck(t *rapid.T, p *spiderPool) {
	used, lists := int64(0), spiderLists(p)
	for id := range draw.SampleID(len(p.scored)) {
		important, similar := p.importance.Resident(id), p.homophily.Has(id)
		if _, in := lists[id]; important && similar || in != similar ||
			p.memory.Has(id) != (important || similar) {
			t.Fatalf("%d: in the importance cache %v, in the homophily cache %v, in memory %v", id,
				important, similar, p.memory.Has(id))
		}
		if p.memory.Has(id) {
			used += p.memory.Size(id)
		}
	}
	if used != p.memory.UsedBytes() || used != p.importance.UsedBytes()+p.homophily.usedBytes ||
		used > p.memory.CapacityBytes() {
		t.Fatalf(
			"%d bytes are used of %d, %d by the importance cache and %d by the homophily cache",
			used, p.memory.CapacityBytes(), p.importance.UsedBytes(), p.homophily.usedBytes)
	}
}

// TestSpiderCacheByEpoch checks that an epoch depends on what was trained before its cut: the
// sampler's weights, the places of residents, and the lists of the homophily cache. What comes
// later counts for the epoch after it.
func TestSpiderCacheByEpoch(t *testing.T) {
	p := spiderTest(6, 4, nil, Values{"by_batch": 0, "r_start": 0.5, "r_end": 0.5})
	alone, three := float32(math.Ln2), float32(draw.Ln(1/3.+1))
	cut := func(epoch int, want ...float32) {
		t.Helper()
		if _, weights := p.Resample(0, epoch, nil); !slices.Equal(weights, want) {
			t.Errorf("epoch %d is drawn by %v, want %v", epoch, weights, want)
		}
	}
	train := func(place map[draw.SampleID]float32, ids ...draw.SampleID) {
		batch := spiderBatch(ids...)
		answers := make([]Answer, len(ids))
		p.Batch(batch, answers)
		r := spiderReport(place, ids...)
		p.Trained(batch, r)
	}
	cut(0, alone, alone, alone, alone, alone, alone)
	p.Begin(0, 0, nil)
	train(map[draw.SampleID]float32{0: 0, 1: 1, 2: 2, 3: 1000}, 0, 1, 2, 3)
	if len(p.homophily.queue) != 0 {
		t.Errorf("epoch 0 has no graph, and nodes %v", p.homophily.queue)
	}
	cut(1, three, three, three, alone, alone, alone)
	train(map[draw.SampleID]float32{0: 2000, 4: 1000}, 0, 4) // after the cut
	if p.graphs[0].scores[0] != alone {
		t.Error("the cut has changed the epoch under way")
	}
	p.Begin(0, 1, nil)
	if !p.importance.Resident(0) || !p.importance.Resident(1) {
		t.Fatal("0 and 1 are no residents")
	}
	train(map[draw.SampleID]float32{2: 3000, 3: 4000}, 2, 3)
	if p.importance.Resident(0) && p.importance.Resident(1) || !p.importance.Resident(3) {
		t.Error("3 did not take the place of a resident whose score fell at the cut")
	}
	if q := p.homophily.queue; len(q) != 1 || q[0].id != 2 || len(q[0].neighbours) != 3 {
		t.Errorf("the homophily cache has %v, want 2 with three neighbours", q)
	}
	cut(2, alone, alone, alone, alone, alone, alone)
	if s, ok := p.homophily.Serves(0); !ok || s != 2 {
		t.Error("2 is not served for 0 before the next epoch begins")
	}
	p.Begin(0, 2, nil)
	if s, ok := p.homophily.Serves(0); ok {
		t.Errorf("%d is served for 0, which has moved away", s)
	}
	if s, ok := p.homophily.Serves(2); !ok || s != 2 {
		t.Error("2 does not serve itself")
	}
}

// TestSpiderCacheGraphOfAnEpoch checks that the graph depends on the newest embeddings alone.
func TestSpiderCacheGraphOfAnEpoch(t *testing.T) {
	scores := func(order ...draw.SampleID) []float32 {
		p := spiderTest(40, 4, nil, Values{"by_batch": 0})
		for round := range 2 {
			for _, id := range order {
				x := float32(int(id)*int(id)%17 + (1-round)*int(order[0]))
				takeAll(p.epochs.latest[0].take, spiderReport(map[draw.SampleID]float32{id: x}, id))
			}
		}
		_, weights := p.Resample(0, 1, nil)
		return weights
	}
	var up, down []draw.SampleID
	for id := range draw.SampleID(40) {
		up, down = append(up, id), append(down, 39-id)
	}
	if a, b := scores(up...), scores(down...); !slices.Equal(a, b) {
		t.Errorf("the order of reports changes the scores from %v to %v", a, b)
	}
}

// TestSpiderCacheRatioByEpoch checks that the ratio is decided at the cut, and holds from the next
// epoch on.
func TestSpiderCacheRatioByEpoch(t *testing.T) {
	p := spiderTest(20, 10, nil, Values{"by_batch": 0})
	p.Begin(0, 0, nil)
	p.trained, p.ratio.active = true, true
	p.Resample(0, 10, nil)
	if got := p.homophily.capacityBytes; got != 1 {
		t.Errorf("the homophily cache has %d bytes after the cut, want 1", got)
	}
	p.Begin(0, 10, nil)
	if got := p.homophily.capacityBytes; got != 2 {
		t.Errorf("the homophily cache has %d bytes at the end, want 2", got)
	}
}

// TestGoldenSpiderCacheByBatch is the golden trace of both systems learning batch by batch, as
// published.
func TestGoldenSpiderCacheByBatch(t *testing.T) {
	for _, s := range []System{spiderCacheSystem, spiderCacheImpSystem} {
		golden(t, s.Name+"-batch", &s, goldenTrace{values: Values{"by_batch": 1}})
	}
}
