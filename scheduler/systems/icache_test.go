package systems

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// bench is a pool with a memory of samples of one byte, driven by hand.
type bench struct {
	cfg    PoolConfig
	memory *Memory
	scores []*Scores
	pool   Pool
	epochs []int // begun, by job
	number []int // next batch, by job
}

// newBench returns a bench of a system; change, if not nil, changes the pool's configuration.
func newBench(
	s *System, samples, capacity, jobs int, values Values, change func(*PoolConfig),
) *bench {
	b := &bench{memory: NewMemory(samples, 1, int64(capacity),
		func(draw.SampleID) int64 { return 1 })}
	b.epochs, b.number = make([]int, jobs), make([]int, jobs)
	for range jobs {
		b.scores = append(
			b.scores, &Scores{Of: protocol.EqualScores(samples, 1), Known: make([]bool, samples)})
	}
	for _, s := range b.scores {
		s.TakeCut()
	}
	b.cfg = PoolConfig{
		System: s, Values: values, Samples: samples, Jobs: jobs, Ranks: 1, Epochs: 10,
		GlobalBatch: 4, Seed: 1, Memory: b.memory, Scores: b.scores,
	}
	if change != nil {
		change(&b.cfg)
	}
	b.pool = s.NewPool(b.cfg)
	return b
}

// score sets the importance of all samples for a job.
func (b *bench) score(job int, of ...float32) {
	for i, s := range of {
		b.scores[job].Of[i], b.scores[job].Known[i] = s, true
	}
}

// begin begins the next epoch of a job.
func (b *bench) begin(job int, ids ...draw.SampleID) {
	b.scores[job].TakeCut()
	b.pool.Begin(job, b.epochs[job], ids)
	b.epochs[job]++
	b.number[job] = 0
}

// draw answers a batch, and returns a word per draw: 7 was in memory, 7+ was read and kept, 7- was
// read, 7>9 was served by 9.
func (b *bench) draw(job int, ids ...draw.SampleID) (got []string) {
	answers := make([]Answer, len(ids))
	b.pool.Batch(&Batch{
		Job: job, Epoch: b.epochs[job] - 1, Number: b.number[job], IDs: ids,
		Rank: make([]int32, len(ids)), Next: make([]float64, len(ids)),
	}, answers)
	b.number[job]++
	for i, a := range answers {
		s := fmt.Sprint(ids[i])
		switch {
		case a.Served != ids[i]:
			s += fmt.Sprintf(">%d", a.Served)
		case a.Read && b.memory.Has(a.Served):
			s += "+"
		case a.Read:
			s += "-"
		}
		got = append(got, s)
	}
	return got
}

func (b *bench) icache() *icache {
	if p, ok := b.pool.(*impact); ok {
		return p.icache
	}
	return b.pool.(*icache)
}

// has returns the samples in memory.
func (b *bench) has() (ids []draw.SampleID) {
	for i := range b.cfg.Samples {
		if id := draw.SampleID(i); b.memory.Has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func same[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// residentsAfter draws samples in a cache of three and returns which stay; sample i has importance
// of[i].
func residentsAfter(
	policy stager.Policy, of []float32, ids ...draw.SampleID,
) (left []draw.SampleID) {
	cache := stager.NewCache(policy, 3, func(draw.SampleID) int64 { return 1 })
	for _, id := range ids {
		cache.Draw(stager.Use{ID: id, Score: of[id], Known: true}, func(draw.SampleID) {})
	}
	for id := range of {
		if cache.Resident(draw.SampleID(id)) {
			left = append(left, draw.SampleID(id))
		}
	}
	return left
}

func TestICACHEFigure5(t *testing.T) {
	importance := []float32{0, 5, 1, 4, 3} // sample 2 has the least
	same(t, "LRU evicts the oldest", residentsAfter(newLRU(PolicyConfig{}), importance, 1, 2, 3, 4),
		2, 3, 4)
	same(t, "iCACHE evicts the least important", residentsAfter(newH(nil), importance, 1, 2, 3, 4),
		1, 3, 4)
	importance[4] = 1
	same(t, "no more important than the top", residentsAfter(newH(nil), importance, 1, 2, 3, 4), 1,
		2, 3)
}

func newH(values Values) *importanceHeap {
	return newImportanceHeap(PolicyConfig{System: &icacheHSystem, Values: values})
}

// Checks a draw of each kind, in a memory of 10: an H-cache of 9 and an L-cache of one package of
// one sample.
func TestICACHEAlgorithm1(t *testing.T) {
	b := newBench(&icacheSystem, 20, 10, 1, nil, nil)
	all := make([]draw.SampleID, 20)
	of := make([]float32, 20)
	for i := range all {
		all[i], of[i] = draw.SampleID(i), float32(i) // 6 … 19 are the upper 0.7 of the draws
	}
	b.score(0, of...)
	b.begin(0, all...)
	same(t, "line 10: an H-sample is kept while there is room",
		b.draw(0, 6, 7, 8, 9, 10, 11, 12, 13, 14),
		"6+", "7+", "8+", "9+", "10+", "11+", "12+", "13+", "14+")
	same(t, "line 6: an H-sample is found", b.draw(0, 6), "6")
	same(t, "line 15: a more important one replaces the top", b.draw(0, 19, 6), "19+", "6-")
	same(t, "line 14: a less important one does not", b.draw(0, 6), "6-")
	got := b.draw(0, 0)
	if low := b.icache().low.items; len(low) != 1 || low[0] > 5 || got[0] == "0-" {
		t.Fatalf("line 23: a draw of 0 gave %v, with %v in the L-cache", got, low)
	}
	item := b.icache().low.items[0]
	same(t, "line 21: an L-sample is found", b.draw(0, item), fmt.Sprint(item))
	if got := b.draw(0, (item+1)%6); got[0] == fmt.Sprintf("%d>%d", (item+1)%6, item) {
		t.Errorf("the only L-sample was used in this epoch, and was served for another: %v", got)
	}
}

func TestICACHEShadowHeap(t *testing.T) {
	h := newH(Values{"rebuild_per_draw": 1})
	evicted := []draw.SampleID{}
	cache := stager.NewCache(h, 3, func(draw.SampleID) int64 { return 1 })
	drawn := func(id draw.SampleID, importance float32) {
		cache.Draw(stager.Use{ID: id, Score: importance},
			func(id draw.SampleID) { evicted = append(evicted, id) })
	}
	scores := []float32{1, 2, 3, 0, 0, 0, 0}
	h.Epoch(scores, false)
	for id := range draw.SampleID(3) {
		drawn(id, scores[id])
	}
	// from now on the shadow heap gets one place per draw
	h.Epoch([]float32{9, 8, 7, 6, 5, 5, 10}, false)
	drawn(3, 1)
	same(t, "the newcomer is compared with the old importance", evicted)
	drawn(3, 6)
	same(t, "the old heap names the victim", evicted, 0)
	if h.heaps[h.current].Len() != 2 || !h.heaps[1-h.current].Has(0) {
		t.Error("the newcomer is not in the shadow heap alone")
	}
	if !h.rebuilding {
		t.Error("the shadow heap is complete too early")
	}
	drawn(1, 8)
	if h.rebuilding {
		t.Error("the shadow heap is not complete after as many draws as residents")
	}
	drawn(4, 5)
	same(t, "the new heap's top is more important than 5", evicted, 0)
	drawn(6, 10)
	same(t, "the new heap names the victim", evicted, 0, 3)
}

func TestICACHESizes(t *testing.T) {
	for _, c := range []struct {
		name     string
		past     []frequency
		high     int64 // bytes of 1000
		capacity int64
	}{
		{"no history: 9:1", []frequency{{}}, 900, 1000},
		{"3:1", []frequency{{300, 100}}, 750, 1000},
		{"rounds to the L-cache", []frequency{{2, 1}}, 666, 1000},
		{"the L-cache holds one package", []frequency{{100, 0}}, 950, 1000},
		{"all L", []frequency{{0, 5}}, 0, 1000},
		{"two jobs", []frequency{{1, 1}, {5, 1}}, 750, 1000},
		{"no overflow", []frequency{{1 << 40, 1 << 40}}, 1 << 49, 1 << 50},
	} {
		b := newBench(&icacheSystem, 10, int(c.capacity), len(c.past), Values{"package_bytes": 50},
			nil).icache()
		b.past = c.past
		b.resize()
		if low := b.low.capacityBytes; low != c.capacity-c.high {
			t.Errorf("%s: the L-cache has %d bytes of %d, want %d", c.name, low, c.capacity,
				c.capacity-c.high)
		}
	}
}

// packages makes a packager over samples of two bytes, of which those below low are L.
func packages(memory *Memory, low draw.SampleID, bytes int64) *packager {
	cfg := PoolConfig{Samples: 20, Memory: memory, Seed: 3}
	return newPackager(cfg, bytes, func(id draw.SampleID) bool { return id < low })
}

func TestICACHEPackaging(t *testing.T) {
	memory := NewMemory(20, 1, 40, func(draw.SampleID) int64 { return 2 })
	p := packages(memory, 10, 5)
	p.repack()
	var first []draw.SampleID
	for i, q := range p.queue {
		if len(q) != 3 && i < 3 || len(q) != 1 && i == 3 {
			t.Errorf("package %d has %d samples of 2 bytes, it is closed with 5", i, len(q))
		}
		first = append(first, q...)
	}
	if slices.IsSorted(first) {
		t.Errorf("packages are not random: %v", first)
	}
	slices.Sort(first)
	same(t, "the first packages have all L-samples", first, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	p.miss(9)
	p.miss(4)
	p.miss(9)
	p.repack()
	same(t, "missed L-samples come first", p.queue[0][:2], 9, 4)
	memory.Load(p.queue[0], 0)
	if bytes, requests := memory.Loaded(); bytes != 6 || requests != 1 {
		t.Errorf("a package of 6 bytes is %d bytes in %d reads, want one", bytes, requests)
	}
}

func TestICACHERepacking(t *testing.T) {
	memory := NewMemory(20, 1, 40, func(draw.SampleID) int64 { return 2 })
	low := draw.SampleID(10)
	p := packages(memory, 0, 4)
	p.low = func(id draw.SampleID) bool { return id < low && id != 3 }
	p.repack()
	low = 15 // 10 … 14 become L, and were in no package
	p.low = func(id draw.SampleID) bool { return id < low && id != 7 }
	p.miss(12)
	p.miss(16)
	memory.Keep(5, 0)
	p.repack()
	all := slices.Concat(p.queue...)
	same(t, "first", all[:1], 12)
	slices.Sort(all)
	same(t, "what was missed or was in packages, is L and not in memory", all, 0, 1, 2, 4, 6, 8, 9,
		12)
	p.repack()
	if n := len(slices.Concat(p.queue...)); n != 8 {
		t.Errorf("%d samples in packages after another H-list, want the same 8", n)
	}
}

// After an H-list, L-samples that became H go to the H-cache.
func TestICACHEListUpdate(t *testing.T) {
	b := newBench(&icacheSystem, 20, 10, 1, Values{"package_bytes": 1}, nil)
	of := make([]float32, 20)
	for i := range of {
		of[i] = float32(i)
	}
	b.score(0, of...)
	ids := []draw.SampleID{
		0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
		19,
	}
	b.begin(0, ids...)
	b.draw(0, 0, 19, 18, 17, 16)
	item := b.icache().low.items[0]
	b.score(0, slices.Repeat([]float32{0}, 20)...)
	b.score(0, slices.Repeat([]float32{1}, int(item+1))...)
	b.begin(0, ids...)
	if c := b.icache(); c.low.in[item] || len(c.low.items) > 0 || !c.high.Resident(item) ||
		!b.memory.Has(item) {
		t.Errorf("sample %d became H and is not in the H-cache", item)
	}
}

func TestICACHESelectiveBackpropagation(t *testing.T) {
	scores := []float32{0.5, 0, 2, 0.5, 7, float32(math.Copysign(0, -1))}
	same(t, "equal losses have the percentile of the last of them", draw.Ranks(scores), 4, 2,
		5, 4, 6, 2)
	s := selective{beta: 2, warmUp: 1}
	name, weights := s.Resample(0, 1, []float32{3, 1, 1, 9})
	same(t, "P = CDF(loss)^beta", weights, 0.5625, 0.25, 0.25, 1)
	if name != "subset" {
		t.Errorf("the sampler is %q, want subset", name)
	}
	if name, _ := s.Resample(0, 0, []float32{1, 1}); name != "uniform" {
		t.Errorf("the sampler without history is %q, want uniform", name)
	}
}

func TestICACHEMultiJobAIV(t *testing.T) {
	b := newBench(&icacheSystem, 4, 10, 2, nil, nil)
	j := b.icache().jobs
	b.score(0, 4, 3, 2, 1)
	b.score(1, 10, 20, 30, 40)
	for _, s := range b.scores {
		s.TakeCut()
	}
	all := []draw.SampleID{0, 1, 2, 3}
	j.begin(0, all)
	j.begin(1, all)
	for _, c := range []struct {
		name    string
		benefit [2]float64
		want    []float32
	}{
		{"both are eligible", [2]float64{2, 4}, []float32{2 + 1, 1.5 + 2, 1 + 3, 0.5 + 4}},
		{"one is", [2]float64{2, 1.5}, []float32{2, 1.5, 1, 0.5}},
		{"none is, so both are", [2]float64{1, 1}, []float32{1.25, 1.25, 1.25, 1.25}},
	} {
		j.jobs[0].benefit, j.jobs[1].benefit = c.benefit[0], c.benefit[1]
		same(t, c.name, j.importance(), c.want...)
	}
	if !j.isHigh(0, 1) || j.isHigh(0, 3) || !j.isHigh(1, 3) || j.isLow(3) {
		t.Error("each job has its own H-list, and a sample is L that is on none")
	}
}

// TestICACHEMultiJobBenefit checks that each job's first batches of an epoch go without the cache
// and the next with it, and that its benefit is the ratio of their times. It also checks which
// times the pool asks for.
func TestICACHEMultiJobBenefit(t *testing.T) {
	type span struct{ job, begin, end int }
	var asked []span
	took := map[span]float64{{0, 0, 2}: 6, {0, 2, 4}: 4, {1, 0, 1}: 3, {1, 1, 2}: 1}
	b := newBench(&icacheSystem, 24, 24, 2, Values{"probe_batches": 2}, func(cfg *PoolConfig) {
		cfg.BatchSeconds = func(job, begin, end int) float64 {
			asked = append(asked, span{job, begin, end})
			return took[span{job, begin, end}]
		}
	})
	var ids []draw.SampleID
	for i := range 24 {
		ids = append(ids, draw.SampleID(i))
	}
	b.begin(0, ids...)
	for number, want := range []string{"0-", "0-", "0+", "0", "0"} {
		same(t, fmt.Sprintf("batch %d", number), b.draw(0, 0), want)
		benefit := b.icache().jobs.jobs[0].benefit
		if measured := benefit == 1.5; measured != (number == 4) ||
			!measured && benefit != unmeasured {
			t.Errorf("the benefit after batch %d is %v", number, benefit)
		}
	}
	b.begin(1, ids[:16]...) // four batches: as many as are measured
	for number, want := range []string{"1-", "1+", "1"} {
		same(t, fmt.Sprintf("batch %d of a short epoch", number), b.draw(1, 1), want)
	}
	if got := b.icache().jobs.jobs; got[1].benefit != 3 || got[0].benefit != 1.5 {
		t.Errorf("the benefits are %v and %v, want 6 s / 4 s and 3 s / 1 s", got[0].benefit,
			got[1].benefit)
	}
	if want := []span{{0, 0, 2}, {0, 2, 4}, {1, 0, 1}, {1, 1, 2}}; !slices.Equal(asked, want) {
		t.Errorf("it asked for the times of %v, want %v", asked, want)
	}
}

// Golden traces of what the default trace does not cover: a heap that is rebuilt slowly and a cache
// with room; an L-cache of its least size and L-samples in the H-cache; jobs with different
// benefits.
func TestICACHEGolden(t *testing.T) {
	for _, c := range []struct {
		file   string
		system *System
		trace  goldenTrace
	}{
		{
			"icache-h-slow", &icacheHSystem,
			goldenTrace{capacity: 150, values: Values{
				"rebuild_per_draw": 1, "h_share": 0.5,
				"warm_up_epochs": 0,
			}},
		},
		{
			"icache-large", &icacheSystem,
			goldenTrace{capacity: 150, values: Values{"h_share": 0.97, "package_bytes": 1 << 20}},
		},
		{"icache-jobs", &icacheSystem, goldenTrace{
			jobs: 3, epochs: 4, values: Values{"probe_batches": 2, "package_bytes": 3},
			sizes: func(id draw.SampleID) int64 { return 1 + int64(id%2) },
			took: func(job, begin, _ int) float64 {
				return 1 + float64(job)*float64(1-min(begin, 1))
			},
		}},
	} {
		t.Run(c.file, func(t *testing.T) { golden(t, c.file, c.system, c.trace) })
	}
}

func TestLFU(t *testing.T) {
	none := make([]float32, 5)
	same(t, "of equals the oldest goes", residentsAfter(newLFU(PolicyConfig{}), none, 1, 2, 3, 4),
		2, 3, 4)
	same(t, "the least drawn goes", residentsAfter(newLFU(PolicyConfig{}), none, 1, 2, 3, 1, 3, 4),
		1, 3, 4)
	same(t, "an evicted sample's draws are forgotten",
		residentsAfter(newLFU(PolicyConfig{}), none, 1, 1, 2, 2, 3, 4, 3, 4), 1, 2, 4)
}

// watch checks what must be true of every answer of iCACHE and IMPACT.
type watch struct {
	*bench
	used []map[draw.SampleID]bool // by job, in its epoch
}

func (w *watch) batch(t *rapid.T, job int, ids []draw.SampleID) {
	answers := make([]Answer, len(ids))
	c := w.icache()
	w.pool.Batch(&Batch{
		Job: job, Epoch: w.epochs[job] - 1, Number: w.number[job], IDs: ids,
		Rank: make([]int32, len(ids)), Next: make([]float64, len(ids)),
	}, answers)
	w.number[job]++
	if used, capacity := w.memory.UsedBytes(), w.memory.CapacityBytes(); used > capacity {
		t.Fatalf("%d bytes of %d are used", used, capacity)
	}
	for i, a := range answers {
		if a.Served != ids[i] {
			if a.Read || c.jobs.isHigh(job, ids[i]) || !c.jobs.isLow(a.Served) ||
				w.used[job][a.Served] {
				t.Fatalf("job %d: %d was served by %d: read %v, drawn is H %v, served is L %v, "+
					"was used %v", job, ids[i], a.Served, a.Read,
					c.jobs.isHigh(job, ids[i]), c.jobs.isLow(a.Served), w.used[job][a.Served])
			}
		}
		w.used[job][a.Served] = true
	}
	if i := len(ids) - 1; !answers[i].Read && !w.memory.Has(answers[i].Served) {
		t.Fatalf("sample %d is served and not in memory", answers[i].Served)
	}
}

// Whatever is drawn, memory is never over capacity, what is not read is in memory, and a substitute
// is an L-sample that the job has not used in this epoch. Batches have one draw, so that nothing
// changes after an answer.
func TestICACHEProperties(t *testing.T) { properties(t, &icacheSystem) }

func TestIMPACTProperties(t *testing.T) { properties(t, &impactSystem) }

func properties(t *testing.T, s *System) {
	rapid.Check(t, func(t *rapid.T) {
		samples, jobs := rapid.IntRange(1, 60).Draw(t, "samples"),
			rapid.IntRange(1, 3).Draw(t, "jobs")
		size := rapid.IntRange(1, 5).Draw(t, "largest size")
		capacity := rapid.Int64Range(1, 120).Draw(t, "capacity")
		values := Values{
			"package_bytes": float64(rapid.IntRange(1, 20).Draw(t, "package")),
			"probe_batches": 3, "rebuild_per_draw": 2,
		}
		w := watch{bench: newBench(s, samples, 1, jobs, values, func(cfg *PoolConfig) {
			cfg.Memory = NewMemory(samples, 1, capacity,
				func(id draw.SampleID) int64 { return 1 + int64(id)%int64(size) })
			cfg.BatchSeconds = func(job, begin, _ int) float64 {
				return 1 + float64(job)*float64(1-min(begin, 1))
			}
			cfg.GlobalBatch = 1
		})}
		w.memory = w.cfg.Memory
		id := rapid.Custom(func(t *rapid.T) draw.SampleID {
			return draw.SampleID(rapid.IntRange(0, samples-1).Draw(t, "id"))
		})
		w.used = make([]map[draw.SampleID]bool, jobs)
		plans := make([][]draw.SampleID, jobs)
		for range rapid.IntRange(1, 150).Draw(t, "draws") {
			job := rapid.IntRange(0, jobs-1).Draw(t, "job")
			if len(plans[job]) == 0 {
				if e, ok := w.pool.(Evaluator); ok && w.epochs[job] > 0 {
					for _, id := range e.Evaluate(job) {
						if !w.memory.Has(id) {
							t.Fatalf("sample %d is evaluated, and not in memory", id)
						}
					}
					w.scores[job].TakeCut()
					e.TakeCut(job, w.epochs[job])
				}
				plans[job] = rapid.SliceOfN(id, 1, 40).Draw(t, "epoch")
				w.begin(job, plans[job]...)
				w.used[job] = map[draw.SampleID]bool{}
			}
			w.batch(t, job, plans[job][:1])
			drawn := plans[job][0]
			w.scores[job].Of[drawn], w.scores[job].Known[drawn] = float32(
				rapid.IntRange(0, 9).Draw(t, "loss")), true
			plans[job] = plans[job][1:]
		}
	})
}
