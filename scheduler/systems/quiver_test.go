package systems

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
)

// quiverDriver asks a quiver for batches and records its answers.
type quiverDriver struct {
	*quiver
	number []int // by job: the next batch
}

func newQuiverDriver(
	samples, jobs, ranks int, capacityBytes int64, values Values, more func(*PoolConfig),
) *quiverDriver {
	cfg := PoolConfig{
		System: &quiverSystem, Values: values, Samples: samples, Jobs: jobs,
		Ranks: ranks, Epochs: 1000,
	}
	cfg.Memory = NewMemory(samples, ranks, capacityBytes,
		func(draw.SampleID) int64 { return 1 })
	if more != nil {
		more(&cfg)
	}
	return &quiverDriver{quiver: newQuiver(cfg).(*quiver), number: make([]int, jobs)}
}

// begin starts an epoch of a job with draws.
func (d *quiverDriver) begin(job, epoch int, draws ...draw.SampleID) {
	d.Begin(job, epoch, draws)
	d.number[job] = 0
}

// answers serves the next batch of a job.
func (d *quiverDriver) answers(job, size int) (*Batch, []Answer) {
	at := d.number[job]
	d.number[job] += size
	b := &Batch{
		Job: job, Epoch: d.jobs[job].epoch, IDs: d.jobs[job].ids[at : at+size],
		Rank: make([]int32, size),
	}
	for i := range b.Rank {
		b.Rank[i] = int32(i % d.ranks)
	}
	answers := make([]Answer, size)
	d.Batch(b, answers)
	return b, answers
}

// batch is answers, formatted as words: `5>3+` when sample 5 was drawn, sample 3 answers it, and it
// is read from storage.
func (d *quiverDriver) batch(job, size int) string {
	b, answers := d.answers(job, size)
	words := make([]string, size)
	for i, a := range answers {
		words[i] = fmt.Sprint(b.IDs[i])
		if a.Served != b.IDs[i] {
			words[i] += fmt.Sprint(">", a.Served)
		}
		if a.Read {
			words[i] += "+"
		}
	}
	return strings.Join(words, " ")
}

// held returns the samples in memory.
func (d *quiverDriver) held() []draw.SampleID {
	var ids []draw.SampleID
	for id := range d.of {
		if d.memory.Has(draw.SampleID(id)) {
			ids = append(ids, draw.SampleID(id))
		}
	}
	return ids
}

// permuted returns the draws of the sampler torch.
func permuted(samples, seed, epoch int) []draw.SampleID {
	s, err := draw.NewSampler(
		draw.SamplerConfig{
			Name: "torch", Samples: samples, Seed: int64(seed), BatchSize: 1,
			World: 1,
		})
	if err != nil {
		panic(err)
	}
	return s.Draw(epoch, nil).IDs
}

// TestQuiverAlgorithm1 follows 12 samples in chunks {0 3 6 9}, {1 4 7 10}, {2 5 8 11}, of which two
// fit, by hand: batches of three, look-ups of six, and as many samples loaded ahead as are drawn.
func TestQuiverAlgorithm1(t *testing.T) {
	d := newQuiverDriver(12, 1, 1, 8, Values{"chunks": 3, "lookup": 2}, nil)
	first := []draw.SampleID{5, 0, 9, 1, 3, 4, 2, 6, 7, 8, 10, 11}
	second := []draw.SampleID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	steps := []struct {
		about, want string
		held        []draw.SampleID
	}{
		{
			"all look-ups miss: chunk 0 in the order of the permutation; 1, 4 and 7 are brought in",
			"5>3+ 0+ 9+",
			[]draw.SampleID{0, 1, 3, 4, 7, 9},
		},
		{"6 is left of chunk 0, then chunk 1 has 1 and 4; 10 completes it, chunk 0 goes, 2 and 5 " +
			"are brought in", "1 3>6+ 4", []draw.SampleID{1, 2, 4, 5, 7, 10}},
		{"second pass: 7 and 10 hit, chunk 2 has 5; 8 and 11 complete it, chunk 1 goes, 0 is " +
			"brought in for the next epoch", "2>10 6>5 7", []draw.SampleID{0, 2, 5, 8, 11}},
		{
			"the rest hits; the job stays with chunk 2", "8 10>2 11",
			[]draw.SampleID{0, 2, 3, 5, 6, 8, 9, 11},
		},
		{
			"second epoch: of six look-ups 2 and 5 hit, chunk 2 has 8, too", "0>5 1>8 2",
			[]draw.SampleID{0, 2, 3, 5, 6, 8, 9, 11},
		},
		{"look-ups continue behind 5, 11 hits; chunk 2 goes, chunk 0 has 0 and 3; 1, 4 and 7 are " +
			"brought in", "3 4>11 5>0", []draw.SampleID{0, 1, 3, 4, 6, 7, 9}},
		{
			"6 and 9 hit, chunk 1 has 1; 10 completes it, chunk 0 goes, 2 and 5 are brought in",
			"6 7>9 8>1",
			[]draw.SampleID{1, 2, 4, 5, 7, 10},
		},
		{"second pass: 4, 7 and 10 hit", "9>4 10 11>7", []draw.SampleID{1, 2, 4, 5, 7, 8, 10, 11}},
	}
	for i, s := range steps {
		switch i {
		case 0:
			d.begin(0, 0, first...)
		case 4:
			d.begin(0, 1, second...)
		}
		if got := d.batch(0, 3); got != s.want {
			t.Errorf("batch %d: %s; want %s: %s", i, got, s.want, s.about)
		}
		if got := d.held(); !slices.Equal(got, s.held) {
			t.Errorf("batch %d: %v in memory, want %v: %s", i, got, s.held, s.about)
		}
	}
}

// TestQuiverSection47 checks the share of look-ups that hit: with the first tenth of the data set
// in memory, ten-fold look-ups fill a batch; with another tenth in the second pass, one in nine
// hits.
func TestQuiverSection47(t *testing.T) {
	const samples, size = 20000, 100
	chunks := quiverStripe(samples, 10)
	j := quiverJob{}
	j.begin(0, permuted(samples, 1, 0), &chunks)
	for pass := range 2 {
		tenth := func(_ *quiverJob, id draw.SampleID) bool {
			return int(id)/(samples/10) == pass
		}
		looked, hits := 0, 0
		for rest := samples - pass*samples/10; rest > 0; rest -= 10 * size {
			limit := min(10*size, rest)
			looked += limit
			hits += len(j.lookup(limit, samples, tenth, nil))
		}
		if want := samples / 10; looked != samples-pass*want || hits != want {
			t.Errorf("pass %d: %d of %d look-ups hit, want %d of %d", pass, hits, looked, want,
				samples-pass*want)
		}
	}
	j.begin(1, permuted(samples, 1, 1), &chunks)
	tenth := func(_ *quiverJob, id draw.SampleID) bool { return id < samples/10 }
	// 3 standard deviations: 28
	if n := len(j.lookup(10*size, samples, tenth, nil)); n < size*7/10 || n > size*13/10 {
		t.Errorf("a ten-fold look-up finds %d samples, want about %d", n, size)
	}
}

// TestQuiverSection51Chunks checks that a chunk is a stripe through all partitions.
func TestQuiverSection51Chunks(t *testing.T) {
	s := quiverStripe(200, 10)
	want := []draw.SampleID{
		6, 7, 26, 27, 46, 47, 66, 67, 86, 87, 106, 107, 126, 127, 146, 147,
		166, 167, 186, 187,
	}
	if !slices.Equal(s.members[3], want) {
		t.Errorf("chunk 3 is %v, want %v", s.members[3], want)
	}
	one := func(draw.SampleID) int64 { return 1 }
	for _, c := range []struct{ capacity, chunks, pair int64 }{
		{40, 10, 40},
		{200, 10, 40},
		{39, 12, 40},
		{20, 21, 20},
		{1, 0, 0},
	} {
		s, pair := quiverFit(200, 10, one, c.capacity)
		if len(s.members) > 0 && pair > c.capacity || c.pair == 0 && len(s.members) > 0 ||
			c.pair > 0 && len(s.members) == 0 {
			t.Errorf("capacity %d: %d chunks, two of which have %d bytes", c.capacity,
				len(s.members), pair)
		}
	}
}

// TestQuiverSection51Eviction checks co-ordinated eviction with three jobs: a chunk is marked when
// the next is complete, stays for the job that works on it, is not found by a new one, and goes
// when the last job is done with it.
func TestQuiverSection51Eviction(t *testing.T) {
	d := newQuiverDriver(12, 3, 1, 8, Values{"chunks": 3, "lookup": 12}, nil)
	order := []draw.SampleID{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}
	d.begin(0, 0, order...)
	d.begin(1, 0, order...)
	steps := []struct {
		about     string
		job, size int
		want      string
		front     int
		marked    bool
	}{
		{"job 1 reads 0 of chunk 0", 1, 1, "0+", 0, false},
		{"job 0 hits 0 and reads 3 and 6; 1 and 4 are brought in", 0, 3, "0 3+ 6+", 0, false},
		{"it reads 9 and continues to chunk 1; 7 is brought in", 0, 3, "9+ 1 4", 0, false},
		{
			"7 hits, it reads 10, which completes chunk 1, and 2 of a chunk that is not cached yet",
			0,
			3, "7 10+ 2+", 0, true,
		},
		{"a new job hits in the latest chunk only", 2, 2, "0>1 3>4", 0, true},
		{
			"job 1 hits in the marked chunk, then continues, and chunk 0 goes", 1, 7,
			"3 6 9 1 4 7 10",
			1, false,
		},
	}
	for i, s := range steps {
		if s.job == 2 {
			d.begin(2, 0, order...)
		}
		if got := d.batch(s.job, s.size); got != s.want || d.front != s.front ||
			d.marked() != s.marked {
			t.Errorf("step %d: %s, chunk %d in front, marked: %v; want %s, %d, %v: %s", i, got,
				d.front, d.marked(), s.want, s.front, s.marked, s.about)
		}
	}
	if held := d.held(); !slices.Equal(held, []draw.SampleID{1, 2, 4, 5, 7, 8, 10}) {
		t.Errorf("%v in memory when the last job has left chunk 0", held)
	}
}

// TestQuiverSection51Forced checks that a slow job holds a chunk only for a number of batches of
// each job after the first job finished it, and then reads the rest of the chunk itself.
func TestQuiverSection51Forced(t *testing.T) {
	for _, patience := range []int{10, 15} {
		d := newQuiverDriver(60, 2, 1, 40, Values{"chunks": 3, "patience": float64(patience)}, nil)
		d.begin(0, 0, permuted(60, 1, 0)...)
		d.begin(1, 0, permuted(60, 2, 0)...)
		d.batch(1, 1)
		after := -1 // batches after the one in which job 0 left chunk 0
		for d.front == 0 && d.jobs[0].unused > 0 {
			d.batch(0, 1)
			if d.doneAt[0] > 0 {
				after++
			}
		}
		if d.front != 1 || after != 2*patience {
			t.Fatalf("patience %d: chunk %d is in front %d batches after the first job left "+
				"chunk 0, want 1 and %d", patience, d.front, after, 2*patience)
		}
		if d.jobs[1].chunk != 0 {
			t.Fatalf("the slow job is at chunk %d, want 0", d.jobs[1].chunk)
		}
		evicted := 0
		for d.jobs[1].unused > 0 {
			cached := d.front == 0 || d.back == 0
			_, answers := d.answers(1, 1)
			if a := answers[0]; d.of[a.Served] == 0 && !cached && d.back != 0 {
				evicted++
				if !a.Read || d.memory.Has(a.Served) {
					t.Errorf("patience %d: sample %d of the evicted chunk: read %v, kept %v",
						patience, a.Served, a.Read, d.memory.Has(a.Served))
				}
			}
		}
		if evicted == 0 {
			t.Errorf("patience %d: the slow job reads nothing of the evicted chunk", patience)
		}
	}
}

// TestQuiverSection52 checks that jobs share what each reads: k jobs at the same pace together read
// each sample about once per epoch, from a cold cache and with a fifth of the data set in memory;
// also with batches larger than chunks.
func TestQuiverSection52(t *testing.T) {
	const samples, epochs = 2000, 3
	for _, c := range []struct{ jobs, batch int }{
		{1, 20},
		{2, 20},
		{7, 20},
		{1, 200},
		{1, 500},
		{1, 1000},
		{1, 2000},
	} {
		jobs, batch := c.jobs, c.batch
		d := newQuiverDriver(samples, jobs, 1, samples/5, nil, nil)
		reads := int64(0)
		for epoch := range epochs {
			for job := range jobs {
				d.begin(job, epoch, permuted(samples, job+1, epoch)...)
			}
			for range samples / batch {
				for job := range jobs {
					_, answers := d.answers(job, batch)
					for _, a := range answers {
						if a.Read {
							reads++
						}
					}
				}
			}
		}
		loaded, _ := d.memory.Loaded()
		// Two chunks may have been loaded for an epoch after the last.
		if share := float64(reads+loaded-2*samples/10) / (samples * epochs); share > 1 {
			t.Errorf("%d jobs with batches of %d read each sample %.2f times an epoch, want once",
				jobs, batch, share)
		}
	}
}

// quiverData is a data set as the cache manager sees it.
type quiverData struct {
	bytes     int64   // cost of all of it
	pairBytes int64   // cost of two chunks; 0 if it cannot be cached in chunks
	full      float64 // G, the sum of the jobs' g, with all of it in memory
	chunked   float64 // the same with two chunks
}

// quiverPlace chooses a mode for each data set, greedily: of all steps to a larger mode that fit
// into what is left of capacityBytes, it takes the one with the largest ratio of added benefit to
// added cost, the first in a tie. A data set without any benefit is not cached.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3. Differs: the paper has one benefit per
// data set, by which two chunks would always be the better choice. Its §7.6 caches whole data sets
// when there is room, so here a step counts what it adds. With Table 3's figures for hits and
// co-operative misses this gives the choices of §7.6.
func quiverPlace(data []quiverData, capacityBytes int64) []quiverMode {
	modes := make([]quiverMode, len(data))
	for {
		best, to, most := -1, quiverNone, -1.0
		for i, d := range data {
			if d.full <= 0 {
				continue
			}
			for m := modes[i] + 1; m <= quiverFull; m++ {
				cost := d.cost(m) - d.cost(modes[i])
				if m == quiverChunked && d.pairBytes == 0 || cost > capacityBytes {
					continue
				}
				if ratio := quiverRatio(d.gain(m)-d.gain(modes[i]), cost); ratio > most {
					best, to, most = i, m, ratio
				}
			}
		}
		if best < 0 {
			return modes
		}
		capacityBytes -= data[best].cost(to) - data[best].cost(modes[best])
		modes[best] = to
	}
}

// quiverGain is g = b·n with b = t_m/t_h, for a job on n GPUs.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3.
func quiverGain(hitSeconds, missSeconds float64, gpus int) float64 {
	return missSeconds / hitSeconds * float64(gpus)
}

// quiverRatio returns benefit per byte, infinite for a step that costs nothing.
func quiverRatio(benefit float64, costBytes int64) float64 {
	if costBytes <= 0 {
		return math.Inf(1)
	}
	return benefit / float64(costBytes)
}

func (d *quiverData) cost(m quiverMode) int64 { return [...]int64{0, d.pairBytes, d.bytes}[m] }

func (d *quiverData) gain(m quiverMode) float64 { return [...]float64{0, d.chunked, d.full}[m] }

// TestQuiverFits compares the choice for one data set with the choice among several.
func TestQuiverFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(0, 99).Draw(t, "capacity")
		gain := rapid.SampledFrom([]float64{0, 0.5, 2}).Draw(t, "gain")
		q := quiverBuffer{memory: NewMemory(0, 1, capacity, nil)}
		q.bytes = rapid.Int64Range(0, 200).Draw(t, "bytes")
		q.pairBytes = rapid.Int64Range(0, min(q.bytes, capacity)).Draw(t, "pair")
		data := quiverData{q.bytes, q.pairBytes, gain, gain}
		if got, want := q.fit(gain > 0), quiverPlace([]quiverData{data}, capacity)[0]; got != want {
			t.Fatalf("%+v in %d bytes: mode %d, want %d", data, capacity, got, want)
		}
	})
}

// TestQuiverSection53 checks the benefits of Table 3 and the choices of §7.6: LibriSpeech,
// OpenImages and ImageNet, four jobs on four GPUs each, chunks of 15 GB or a tenth, and caches of
// 100, 200 and 700 (binary) GB.
func TestQuiverSection53(t *testing.T) {
	const gb, gib = 1e9, 1 << 30
	table := []struct{ miss, hit, coop, wantHit, wantCoop float64 }{
		{1614, 1234, 1265, 1.31, 1.28},
		{2874, 1274, 1817, 2.26, 1.58},
		{2505, 646, 1064, 3.88, 2.35},
	}
	data := []quiverData{
		{bytes: 90 * gb, pairBytes: 18 * gb},
		{bytes: 531 * gb, pairBytes: 30 * gb},
		{bytes: 154 * gb, pairBytes: 30 * gb},
	}
	for i, row := range table {
		if b := quiverGain(row.hit, row.miss, 1); math.Abs(b-row.wantHit) > 0.01 {
			t.Errorf("row %d: benefit %.3f, want %.2f", i, b, row.wantHit)
		}
		if b := quiverGain(row.coop, row.miss, 1); math.Abs(b-row.wantCoop) > 0.01 {
			t.Errorf("row %d: benefit of co-operative misses %.3f, want %.2f", i, b, row.wantCoop)
		}
		for range 4 {
			data[i].full += quiverGain(row.hit, row.miss, 4)
			data[i].chunked += quiverGain(row.coop, row.miss, 4)
		}
	}
	for _, c := range []struct {
		capacity int64
		want     []quiverMode
	}{
		{10 * gib, []quiverMode{quiverNone, quiverNone, quiverNone}},
		{40 * gib, []quiverMode{quiverNone, quiverNone, quiverChunked}},
		{100 * gib, []quiverMode{quiverChunked, quiverChunked, quiverChunked}},
		{200 * gib, []quiverMode{quiverChunked, quiverChunked, quiverFull}},
		{700 * gib, []quiverMode{quiverChunked, quiverFull, quiverFull}},
		{780 * gib, []quiverMode{quiverFull, quiverFull, quiverFull}},
	} {
		if got := quiverPlace(data, c.capacity); !slices.Equal(got, c.want) {
			t.Errorf("%d bytes: modes %v, want %v", c.capacity, got, c.want)
		}
	}
	data[2].full, data[2].chunked = 0, 0
	if got := quiverPlace(data, 780*gib)[2]; got != quiverNone {
		t.Errorf("a data set without benefit has mode %v, want none", got)
	}
}

// TestQuiverSection53Probing checks that a job whose steps take no longer without caching gets what
// it draws, from storage, and that the manager caches for it once such steps become slower.
func TestQuiverSection53Probing(t *testing.T) {
	miss := []float64{1, 1}
	d := newQuiverDriver(30, 2, 1, 20, Values{"benefit": 1.1}, func(cfg *PoolConfig) {
		cfg.StepSeconds = func(job int) (float64, float64) { return 1, miss[job] }
	})
	begin := func(epoch int) {
		d.begin(0, epoch, permuted(30, 1, epoch)...)
		d.begin(1, epoch, permuted(30, 2, epoch)...)
	}
	plain := func(job int) bool {
		b, answers := d.answers(job, 3)
		for i, a := range answers {
			if a.Served != b.IDs[i] || !a.Read {
				return false
			}
		}
		return true
	}
	begin(0)
	if !plain(0) || !plain(1) || d.mode != quiverNone || len(d.held()) > 0 {
		t.Error("no job profits, but something is cached")
	}
	miss[1] = 2
	begin(1)
	if !plain(0) || plain(1) || d.mode != quiverChunked || len(d.held()) == 0 {
		t.Error("job 1 profits alone, but it is not cached for alone")
	}
	miss[1] = 1.05
	begin(2)
	if d.mode != quiverNone || len(d.held()) > 0 {
		t.Error("no job profits any more, but something is cached")
	}
}

// TestQuiverSection54 checks a data set that fits: the first epoch caches what it reads, the next
// ones hit in the order of the draws.
func TestQuiverSection54(t *testing.T) {
	for _, samples := range []int{1, 2, 7, 60} {
		d := newQuiverDriver(samples, 1, 2, int64(samples), nil, nil)
		for epoch := range 3 {
			d.begin(0, epoch, permuted(samples, 1, epoch)...)
			reads := 0
			for d.number[0] < samples {
				b, answers := d.answers(0, min(4, samples-d.number[0]))
				for i, a := range answers {
					if a.Read {
						reads++
					}
					if epoch > 0 && a.Served != b.IDs[i] {
						t.Errorf("%d samples, epoch %d: %d is served for %d", samples, epoch,
							a.Served, b.IDs[i])
					}
				}
			}
			if want := map[bool]int{true: samples, false: 0}[epoch == 0]; reads != want {
				t.Errorf("%d samples, epoch %d: %d reads, want %d", samples, epoch, reads, want)
			}
		}
		if loaded, _ := d.memory.Loaded(); loaded > 0 {
			t.Errorf("%d bytes were brought in ahead", loaded)
		}
	}
}

// TestQuiverProperties checks, for any jobs, sizes and options: a job uses each of its draws once
// per epoch; what is served from memory was there; with chunks, memory never holds more than two
// (Figure 7).
func TestQuiverProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		samples := rapid.IntRange(1, 80).Draw(r, "samples")
		jobs := rapid.IntRange(1, 3).Draw(r, "jobs")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 9), samples, samples).Draw(r, "sizes")
		capacity := rapid.Int64Range(1, 400).Draw(r, "capacity")
		values := Values{
			"chunks":   float64(rapid.IntRange(2, 12).Draw(r, "chunks")),
			"lookup":   float64(rapid.IntRange(1, 10).Draw(r, "lookup")),
			"patience": float64(rapid.IntRange(0, 9).Draw(r, "patience")), "benefit": 1.1,
		}
		ranks := rapid.IntRange(1, 3).Draw(r, "ranks")
		d := newQuiverDriver(samples, jobs, ranks, capacity, values, func(cfg *PoolConfig) {
			cfg.Epochs = 3
			cfg.Memory = NewMemory(samples, ranks, capacity,
				func(id draw.SampleID) int64 { return sizes[id] })
			if rapid.Bool().Draw(r, "probed") {
				steps := rapid.SliceOfN(rapid.Float64Range(1, 1.2), 7, 7).Draw(r, "steps")
				asked := 0
				cfg.StepSeconds = func(int) (float64, float64) {
					asked++
					return 1, steps[asked/4%len(steps)]
				}
			}
		})
		epochs, used := make([]int, jobs), make([]map[draw.SampleID]int, jobs)
		for job := range jobs {
			epochs[job] = -1
		}
		for {
			var ready []int
			for job := range jobs {
				if epochs[job] < 2 || d.jobs[job].unused > 0 {
					ready = append(ready, job)
				}
			}
			if len(ready) == 0 {
				return
			}
			job := rapid.SampledFrom(ready).Draw(r, "job")
			if d.jobs[job].unused == 0 {
				epochs[job]++
				draws := permuted(samples, job, epochs[job])
				draws = append(draws, draws[:rapid.IntRange(0, samples).Draw(r, "again")]...)
				used[job] = map[draw.SampleID]int{}
				for _, id := range draws {
					used[job][id]++
				}
				d.begin(job, epochs[job], draws...)
			}
			d.checkBatch(r, job, used[job])
		}
	})
}

func (d *quiverDriver) checkBatch(r *rapid.T, job int, used map[draw.SampleID]int) {
	before, again := d.held(), map[draw.SampleID]bool{}
	on := d.jobs[job].on
	_, answers := d.answers(job, rapid.IntRange(1, d.jobs[job].unused).Draw(r, "size"))
	for _, a := range answers {
		if used[a.Served]--; used[a.Served] < 0 {
			r.Fatalf("job %d uses sample %d too often", job, a.Served)
		}
		if here := slices.Contains(before, a.Served); !again[a.Served] && on && a.Read == here {
			r.Fatalf("sample %d is read: %v, in memory before: %v", a.Served, a.Read, here)
		}
		again[a.Served] = true
	}
	chunks := map[int32]bool{}
	for _, id := range d.held() {
		chunks[d.of[id]] = true
	}
	if d.mode == quiverChunked && len(chunks) > 2 || d.mode == quiverNone && len(chunks) > 0 {
		r.Fatalf("chunks %v are in memory", slices.Sorted(maps.Keys(chunks)))
	}
	if d.jobs[job].unused == 0 {
		for id, n := range used {
			if n != 0 {
				r.Fatalf("job %d leaves sample %d %d times unused", job, id, n)
			}
		}
	}
}

// TestGoldenQuiverJobs is the golden trace of two jobs with eight smaller chunks and a small
// patience.
func TestGoldenQuiverJobs(t *testing.T) {
	golden(t, "quiver-jobs", &quiverSystem,
		goldenTrace{
			jobs: 2, epochs: 3, globalBatch: 9, capacity: 55,
			values: Values{"chunks": 8, "lookup": 5},
		})
}
