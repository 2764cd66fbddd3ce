package systems

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

var update = flag.Bool("update", false, "write the golden traces instead of comparing with them")

// TestGolden compares every system's answers with those last reviewed: testdata/golden has a file
// per system, with a line per global batch. `go test ./scheduler/systems -run TestGolden/NAME
// -update` rewrites one.
func TestGolden(t *testing.T) {
	for _, s := range All() {
		if s.Offline() {
			continue // package simulator runs and tests it
		}
		t.Run(s.Name, func(t *testing.T) { golden(t, s.Name, &s, goldenTrace{}) })
	}
}

// goldenTrace is a small training with synthetic losses, labels and embeddings. A zero field has
// its default.
type goldenTrace struct {
	samples, epochs, jobs, ranks int // 200, 6, 1, 2
	globalBatch, capacity        int // 20 draws, 40 samples
	values                       Values
	// nil: one byte each
	sizes func(draw.SampleID) int64
	// PoolConfig.BatchSeconds
	took func(job, begin, end int) float64
	// changes the pool's configuration last
	change func(cfg *PoolConfig)
	// more checks, after every batch
	check func(t *testing.T, b *Batch, answers []Answer)
}

func (g *goldenTrace) setDefaults() {
	for _, d := range []struct {
		at  *int
		num int
	}{
		{&g.samples, 200},
		{&g.epochs, 6},
		{&g.jobs, 1},
		{&g.ranks, 2},
		{&g.globalBatch, 20},
		{&g.capacity, 40},
	} {
		if *d.at == 0 {
			*d.at = d.num
		}
	}
	if g.sizes == nil {
		g.sizes = func(draw.SampleID) int64 { return 1 }
	}
}

// goldenClasses is the number of labels, goldenDimensions the length of an embedding.
const goldenClasses, goldenDimensions = 5, 4

// golden runs a system on a trace and compares all its answers with testdata/golden/file.txt.
//
// A line has the draws of a batch: `7` was served from its consumer's memory, `7@1` from rank 1's,
// `7+` was read and kept, `7-` was read and not kept, each at the time when the batch is answered,
// and `7>9` was served by sample 9. At its end are the bytes in memory and those loaded ahead.
func golden(t *testing.T, file string, s *System, trace goldenTrace) {
	t.Helper()
	trace.setDefaults()
	d := newGoldenDriver(t, s, trace)
	for epoch := range trace.epochs {
		d.epoch(epoch)
	}
	path := filepath.Join("testdata", "golden", file+".txt")
	got := d.out.String()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%s has no golden trace (write it with -update, and look at it): %v", s.Name, err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(gotLines), len(wantLines)) {
		if gotLines[i] != wantLines[i] {
			t.Fatalf("%s:%d:\n got %s\nwant %s", path, i+1, gotLines[i], wantLines[i])
		}
	}
	if len(gotLines) != len(wantLines) {
		t.Fatalf("%s has %d lines, want %d", path, len(gotLines), len(wantLines))
	}
}

// goldenDriver drives a pool as the simulator does. Scores are updated after every batch.
type goldenDriver struct {
	t       *testing.T
	trace   goldenTrace
	pool    Pool
	memory  *Memory
	scorer  protocol.Scorer
	scores  []*Scores
	sampler string
	losses  [][]float32
	labels  []int32
	vectors [][]float32
	plans   []*draw.Draws // by job, of the epoch under way
	drawn   []int         // by job, how many of these are drawn
	out     strings.Builder
}

func newGoldenDriver(t *testing.T, s *System, trace goldenTrace) *goldenDriver {
	t.Helper()
	d := &goldenDriver{t: t, trace: trace, sampler: s.Sampler}
	d.synthesise()
	d.memory = NewMemory(trace.samples, trace.ranks, int64(trace.capacity), trace.sizes)
	initial := float32(0)
	if s.Scorer != "" {
		var err error
		if d.scorer, err = protocol.NewScorer(s.Scorer); err != nil {
			t.Fatal(err)
		}
		initial = d.scorer.Initial(trace.globalBatch)
	}
	for range trace.jobs {
		d.scores = append(
			d.scores, &Scores{
				Of:    protocol.EqualScores(trace.samples, initial),
				Known: make([]bool, trace.samples),
			})
	}
	for _, s := range d.scores {
		s.TakeCut()
	}
	cfg := PoolConfig{
		System: s, Values: trace.values, Samples: trace.samples, Jobs: trace.jobs,
		Ranks: trace.ranks, Epochs: trace.epochs,
		GlobalBatch: trace.globalBatch, Seed: 1, Memory: d.memory, Scores: d.scores,
		Labels: d.labels, Dimensions: goldenDimensions,
		BatchSeconds: trace.took,
	}
	if trace.change != nil {
		trace.change(&cfg)
	}
	if s.NewPool != nil {
		d.pool = s.NewPool(cfg)
		return d
	}
	d.pool = NewPolicyPool(cfg, s.NewPolicy(PolicyConfig{System: s, Seed: 1, Values: trace.values}))
	return d
}

// synthesise makes losses of samples that differ in difficulty and get easier, and embeddings that
// cluster by class.
func (d *goldenDriver) synthesise() {
	r := newRandom(12345)
	centre := make([][goldenDimensions]int, goldenClasses)
	for c := range centre {
		for k := range centre[c] {
			centre[c][k] = r.below(2000)
		}
	}
	hard := make([]int, d.trace.samples)
	for i := range hard {
		hard[i] = 1 + r.below(1000)
		class := r.below(goldenClasses)
		d.labels = append(d.labels, int32(class))
		v := make([]float32, goldenDimensions)
		for k := range v {
			v[k] = float32(centre[class][k]+r.below(600)) / 1024
		}
		d.vectors = append(d.vectors, v)
	}
	for e := range d.trace.epochs {
		row := make([]float32, d.trace.samples)
		for i := range row {
			row[i] = float32(hard[i]*(100-10*min(e, 8))+r.below(10000)) / 65536
		}
		d.losses = append(d.losses, row)
	}
}

// epoch trains an epoch of all jobs, whose batches alternate.
func (d *goldenDriver) epoch(epoch int) {
	d.plans, d.drawn = d.plans[:0], make([]int, d.trace.jobs)
	batches := 0
	for job := range d.trace.jobs {
		draws := d.draw(job, epoch)
		if r, ok := d.pool.(Repeater); ok {
			draws.IDs = r.Repeat(job, epoch, draws.IDs)
		}
		d.plans = append(d.plans, draws)
		d.pool.Begin(job, epoch, draws.IDs)
		batches = max(batches, (len(draws.IDs)+d.trace.globalBatch-1)/d.trace.globalBatch)
	}
	d.foresee(nil)
	for b := range batches {
		for job := range d.trace.jobs {
			if b*d.trace.globalBatch < len(d.plans[job].IDs) {
				d.batch(job, epoch, b)
			}
		}
	}
}

func (d *goldenDriver) draw(job, epoch int) *draw.Draws {
	if e, ok := d.pool.(Evaluator); ok && epoch > 0 {
		if ids := e.Evaluate(job); len(ids) > 0 {
			d.score(job, d.report(epoch-1, ids))
			fmt.Fprintf(&d.out, "%d.%d evaluates %d of %d\n", job, epoch-1, len(ids),
				d.trace.samples)
		}
		d.scores[job].TakeCut()
		e.TakeCut(job, epoch)
	}
	d.scores[job].TakeCut()
	name, weights := d.sampler, append([]float32(nil), d.scores[job].Of...)
	if r, ok := d.pool.(Drawer); ok {
		r.Cut(job)
		return draw.Listed(r.Draw(job, epoch, weights)).Draw(epoch, nil)
	}
	if r, ok := d.pool.(Resampler); ok {
		name, weights = r.Resample(job, epoch, weights)
	}
	sampler, err := draw.NewSampler(draw.SamplerConfig{
		Name: name, Samples: d.trace.samples, Seed: 1 + int64(job), BatchSize: d.trace.globalBatch,
		World: 1, Floor: draw.NoFloor,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return sampler.Draw(epoch, weights)
}

func (d *goldenDriver) batch(job, epoch, number int) {
	draws := d.plans[job]
	lo := number * d.trace.globalBatch
	ids := draws.IDs[lo:min(lo+d.trace.globalBatch, len(draws.IDs))]
	b := &Batch{
		Job: job, Epoch: epoch, Number: number, IDs: ids, Rank: make([]int32, len(ids)),
		Next: make([]float64, len(ids)),
	}
	for i, id := range ids {
		b.Rank[i] = int32(i % d.trace.ranks)
		d.drawn[job] = lo + i + 1
		b.Next[i] = d.next(id)
	}
	answers := make([]Answer, len(ids))
	d.pool.Batch(b, answers)
	d.write(b, answers)
	if d.trace.check != nil {
		d.trace.check(d.t, b, answers)
	}
	served := make([]draw.SampleID, len(ids))
	for i, a := range answers {
		served[i] = a.Served
	}
	r := d.report(epoch, served)
	d.score(job, r)
	d.pool.Trained(b, r)
	d.foresee(ids)
}

// next returns when some job draws a sample again.
func (d *goldenDriver) next(id draw.SampleID) float64 {
	at := math.Inf(1)
	for job, draws := range d.plans {
		if i := slices.Index(draws.IDs[d.drawn[job]:], id); i >= 0 {
			at = min(at, float64(draws.Epoch)+float64(d.drawn[job]+i)/float64(len(draws.IDs)))
		} else {
			at = min(at, draws.Next(id, d.scores[job].Of[id]))
		}
	}
	return at
}

func (d *goldenDriver) foresee(ids []draw.SampleID) {
	if f, ok := d.pool.(Foreseer); ok {
		f.Foresee(ids, d.next)
	}
}

func (d *goldenDriver) report(epoch int, ids []draw.SampleID) protocol.Report {
	r := protocol.Report{IDs: ids}
	for _, id := range ids {
		r.Losses = append(r.Losses, d.losses[epoch][id])
		r.Embeddings = append(r.Embeddings, d.vectors[id])
	}
	return r
}

func (d *goldenDriver) score(job int, r protocol.Report) {
	if d.scorer == nil {
		return
	}
	s, fresh := d.scores[job], make([]float32, len(r.IDs))
	d.scorer.Score(r, fresh)
	for i, id := range r.IDs {
		s.Of[id], s.Known[id] = fresh[i], true
	}
}

// write adds the line of a batch, and checks what must hold for every pool.
func (d *goldenDriver) write(b *Batch, answers []Answer) {
	if d.memory.UsedBytes() > d.memory.CapacityBytes() {
		d.t.Errorf("batch %d of epoch %d: %d bytes of %d are used", b.Number, b.Epoch,
			d.memory.UsedBytes(), d.memory.CapacityBytes())
	}
	fmt.Fprintf(&d.out, "%d.%d.%d:", b.Job, b.Epoch, b.Number)
	for i, a := range answers {
		fmt.Fprintf(&d.out, " %d", b.IDs[i])
		if a.Served != b.IDs[i] {
			fmt.Fprintf(&d.out, ">%d", a.Served)
		}
		switch {
		case a.Read && d.memory.Has(a.Served):
			d.out.WriteByte('+')
		case a.Read:
			d.out.WriteByte('-')
		case d.memory.Has(a.Served) && d.memory.Home(a.Served) != int(b.Rank[i]):
			fmt.Fprintf(&d.out, "@%d", d.memory.Home(a.Served))
		}
		if math.IsNaN(b.Next[i]) {
			d.t.Errorf("the next draw of sample %d is unknown", b.IDs[i])
		}
	}
	bytes, requests := d.memory.Loaded()
	fmt.Fprintf(&d.out, " | %d, %d/%d\n", d.memory.UsedBytes(), bytes, requests)
}
