package systems

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
)

// near reports whether two numbers agree to twelve digits.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Max(math.Abs(a), math.Abs(b)) }

// nopfsExample is a machine with round numbers: a staging buffer with two threads, memory with
// 4,000 MB/s per thread and a disk with 500 MB/s per thread.
var nopfsExample = NoPFSModel{
	Compute: 64, Preprocess: 200, Network: 1000,
	PFS: []NoPFSRate{{1, 330}, {2, 730}, {4, 1540}, {8, 2870}},
	Tiers: []NoPFSTier{
		{ReadMBps: 9000, WriteMBps: 600, Threads: 2},
		{ReadMBps: 16000, WriteMBps: 8000, Threads: 4},
		{ReadMBps: 1000, WriteMBps: 1000, Threads: 2},
	},
}

// TestNoPFSModelFetch checks the fastest of PFS, s/(t(γ)/γ), remote, s/min(b_c, r_j/p_j), and
// local, s/(r_j/p_j).
func TestNoPFSModelFetch(t *testing.T) {
	slow := nopfsExample
	slow.Network = 300
	for _, c := range []struct {
		about         string
		model         *NoPFSModel
		clients       float64
		local, remote int
		seconds       float64
		source        NoPFSSource
	}{
		{
			"storage, 4 clients: 10/(1540/4)", &nopfsExample, 4, NoPFSNowhere, NoPFSNowhere,
			10 / 385.0, NoPFSStorage,
		},
		{
			"storage, 3 clients: 10/(1135/3)", &nopfsExample, 3, NoPFSNowhere, NoPFSNowhere,
			30 / 1135.0, NoPFSStorage,
		},
		{
			"storage, 16 clients: 10/(2870/16)", &nopfsExample, 16, NoPFSNowhere, NoPFSNowhere,
			160 / 2870.0, NoPFSStorage,
		},
		{
			"storage, half a client: 10/(165/0.5)", &nopfsExample, 0.5, NoPFSNowhere, NoPFSNowhere,
			10 / 330.0, NoPFSStorage,
		},
		{"local memory: 10/(16000/4)", &nopfsExample, 4, 1, NoPFSNowhere, 0.0025, NoPFSLocal},
		{"remote memory: 10/min(1000, 4000)", &nopfsExample, 4, NoPFSNowhere, 1, 0.01, NoPFSRemote},
		{"remote disk: 10/min(1000, 500)", &nopfsExample, 4, NoPFSNowhere, 2, 0.02, NoPFSRemote},
		{
			"another worker's memory is faster than the own disk", &nopfsExample, 4, 2, 1, 0.01,
			NoPFSRemote,
		},
		{"equal: the own one", &nopfsExample, 4, 2, 2, 0.02, NoPFSLocal},
		{
			"storage is faster than a slow network: 10/385 < 10/300", &slow, 4, NoPFSNowhere, 1,
			10 / 385.0, NoPFSStorage,
		},
	} {
		if seconds, source := c.model.Fetch(10, c.clients, c.local, c.remote); !near(seconds,
			c.seconds) || source != c.source {
			t.Errorf("%s: %v s from %d, want %v from %d", c.about, seconds, source, c.seconds,
				c.source)
		}
	}
}

// TestNoPFSModelWrite checks write = max(s/β, s/(w_0/p_0)).
func TestNoPFSModelWrite(t *testing.T) {
	if got := nopfsExample.Write(30); !near(got, 0.15) {
		t.Errorf("preprocessing bounds: %v s, want 30/200", got)
	}
	slow := nopfsExample
	slow.Tiers = []NoPFSTier{{ReadMBps: 9000, WriteMBps: 200, Threads: 2}}
	if got := slow.Write(30); !near(got, 0.3) {
		t.Errorf("the staging buffer bounds: %v s, want 30/100", got)
	}
}

// TestNoPFSModelRead checks read = fetch + write.
func TestNoPFSModelRead(t *testing.T) {
	sizes := []float64{64, 128, 16, 320}
	var reads []float64
	for i, local := range []int{1, NoPFSNowhere, 1, 2} {
		reads = append(reads, nopfsExample.Read(sizes[i], 1, local, NoPFSNowhere))
	}
	want := []float64{
		64/4000.0 + 64/200.0, 128/330.0 + 128/200.0, 16/4000.0 + 16/200.0,
		320/500.0 + 320/200.0,
	}
	if !slices.EqualFunc(reads, want, near) {
		t.Fatalf("reads take %v, want %v", reads, want)
	}
}

// TestNoPFSPlacement checks the order of placement by hand: two workers, memory for two samples.
func TestNoPFSPlacement(t *testing.T) {
	accesses := []nopfsAccess{
		{4, 0, 5},
		{1, 0, 4},
		{2, 0, 4},
		{0, 0, 3},
		{3, 1, 3},
		{0, 1, 2},
		{5, 0, 2},
		{5, 1, 1},
		{4, 1, 1},
	}
	got := nopfsPlace(accesses, 7, []int64{2, 2}, func(draw.SampleID) int64 { return 1 })
	want := [][]int32{{1}, {0}, nil, {1}, {0}, nil, nil}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("homes %v, want %v", got, want)
	}
	// A sample that does not fit leaves its room to a smaller one.
	sizes := []int64{3, 2, 1}
	got = nopfsPlace([]nopfsAccess{{1, 0, 3}, {0, 0, 2}, {2, 0, 1}}, 3, []int64{3},
		func(id draw.SampleID) int64 { return sizes[id] })
	if want := [][]int32{nil, {0}, {0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("homes %v, want %v", got, want)
	}
	// Workers choose separately: both keep the sample that they read most.
	got = nopfsPlace([]nopfsAccess{{0, 1, 3}, {0, 0, 2}, {1, 0, 1}, {1, 1, 1}}, 2,
		[]int64{1, 1}, func(draw.SampleID) int64 { return 1 })
	if want := [][]int32{{1, 0}, nil}; !reflect.DeepEqual(got, want) {
		t.Errorf("homes %v, want %v", got, want)
	}
}

// TestNoPFSCopies checks that the share of the data that some worker holds falls short of what
// memory has room for, since workers choose separately and hold the same samples. The expected
// shares come from another program that fills each worker's memory with what it reads most.
func TestNoPFSCopies(t *testing.T) {
	const samples = 4000
	for _, c := range []struct {
		ranks, epochs int
		capacity      float64
		held          float64
	}{
		{4, 10, 1, 0.812},
		{4, 10, 0.4, 0.383},
		{16, 90, 0.2, 0.189},
		{16, 90, 1, 0.696},
		{64, 10, 1, 0.546},
	} {
		room := slices.Repeat([]int64{int64(c.capacity * samples / float64(c.ranks))}, c.ranks)
		homes := nopfsPlace(nopfsCounts(samples, c.epochs, c.ranks), samples, room,
			func(draw.SampleID) int64 { return 1 })
		held, copies := 0, 0
		for _, h := range homes {
			held, copies = held+min(len(h), 1), copies+len(h)
		}
		if share := float64(held) / samples; math.Abs(share-c.held) > 0.012 {
			t.Errorf("%d workers, %d epochs, memory for %v: %.3f of the data are held, want %.3f",
				c.ranks, c.epochs, c.capacity, share, c.held)
		}
		if most := int(c.capacity * samples); copies > most || copies < most-c.ranks {
			t.Errorf("%d workers hold %d samples, there is room for %d", c.ranks, copies, most)
		}
	}
}

// nopfsCounts returns the frequencies of a seeded shuffle.
func nopfsCounts(samples, epochs, ranks int) []nopfsAccess {
	cfg := &PoolConfig{
		Samples: samples, Jobs: 1, Ranks: ranks, Epochs: epochs,
		GlobalBatch: 4 * ranks, Seed: 7,
	}
	return nopfsAccesses(nopfsSamplers(cfg), samples, epochs, ranks, 1)
}

// TestNoPFSFrequencies compares the frequencies with the draws themselves, and checks their order.
func TestNoPFSFrequencies(t *testing.T) {
	const samples, epochs, ranks = 48, 9, 3
	type reader struct {
		id   draw.SampleID
		rank int32
	}
	want := map[reader]int{}
	for epoch := range epochs {
		for j, id := range permuted(samples, 7, epoch) {
			want[reader{id, int32(j % ranks)}]++
		}
	}
	last := epochs
	got := nopfsCounts(samples, epochs, ranks)
	for _, a := range got {
		if a.count > last || a.count != want[reader{a.id, a.rank}] {
			t.Errorf("rank %d reads sample %d %d times after one of %d, want %d", a.rank, a.id,
				a.count, last, want[reader{a.id, a.rank}])
		}
		last = a.count
	}
	if len(got) != len(want) {
		t.Errorf("%d pairs of reader and sample, want %d", len(got), len(want))
	}
}

// above returns the probability that a Binomial(n, p) variable exceeds k.
func above(n int, p float64, k int) float64 {
	sum, term := 0.0, math.Pow(1-p, float64(n))
	for i := range k + 1 {
		sum += term
		term *= float64(n-i) / float64(i+1) * p / (1 - p)
	}
	return 1 - sum
}

// TestNoPFSBinomial checks the example of the access frequencies: of ImageNet-1k's samples, a
// worker of 16 reads one 5.6 times on average in 90 epochs, and some 31,600 samples more than 10
// times.
func TestNoPFSBinomial(t *testing.T) {
	const imageNet, epochs, workers = 1281167, 90, 16
	if mean := float64(epochs) / workers; mean < 5.6 || mean >= 5.65 {
		t.Errorf("mean %v, want 5.6", mean)
	}
	if often := imageNet * above(epochs, 1.0/workers, 10); math.Abs(often-31635) > 50 {
		t.Errorf("%.0f samples are read more than 10 times, want about 31,600", often)
	}
	// The seeded shuffle: 4,000 samples, all 16 workers, within five standard deviations of the
	// binomial at each count.
	const samples = 4000
	var more [epochs + 1]int
	for _, a := range nopfsCounts(samples, epochs, workers) {
		for k := range a.count {
			more[k]++
		}
	}
	for k := range 14 {
		p := above(epochs, 1.0/workers, k)
		want, deviation := p*samples*workers, math.Sqrt(p*(1-p)*samples*workers)
		if math.Abs(float64(more[k])-want) > 5*deviation+1 {
			t.Errorf("%d pairs of worker and sample have more than %d reads, want %.0f ± %.0f",
				more[k], k, want, deviation)
		}
	}
}

// TestNoPFSPool checks the pool on the shuffle that it knows: after the first epoch it hits exactly
// what fits; what it holds lies on its home; and more hits are local than by chance.
func TestNoPFSPool(t *testing.T) {
	const samples, epochs, ranks, capacity = 480, 12, 4, 96
	memory := NewMemory(samples, ranks, capacity, func(draw.SampleID) int64 { return 1 })
	cfg := PoolConfig{
		System: &nopfsSystem, Samples: samples, Jobs: 1, Ranks: ranks, Epochs: epochs,
		GlobalBatch: 48, Seed: 7, Memory: memory,
	}
	pool := newNoPFS(cfg)
	local, all := 0, 0
	for epoch := range epochs {
		hits := 0
		for at, ids := 0, permuted(samples, 7, epoch); at < samples; at += 48 {
			b := &Batch{Epoch: epoch, IDs: ids[at : at+48], Rank: make([]int32, 48)}
			for i := range b.Rank {
				b.Rank[i] = int32(i % ranks)
			}
			answers := make([]Answer, 48)
			pool.Batch(b, answers)
			for i, a := range answers {
				if !a.Read {
					hits++
					if memory.Home(a.Served) == int(b.Rank[i]) {
						local++
					}
				}
			}
		}
		all += hits
		if want := map[bool]int{true: 0, false: capacity}[epoch == 0]; hits != want {
			t.Errorf("epoch %d: %d hits, want %d", epoch, hits, want)
		}
	}
	// The most frequent of 480 samples are read by their home 6 or more times in 12 epochs, others
	// 3 times on average.
	if share := float64(local) / float64(all); share < 0.5 {
		t.Errorf("%.2f of the hits are local, want at least 0.5", share)
	}
}

// TestNoPFSSourceByModel checks that the pool reads storage where the model says that it is faster
// than another rank.
func TestNoPFSSourceByModel(t *testing.T) {
	memory := NewMemory(4, 2, 4, func(draw.SampleID) int64 { return 1 })
	// Two clients get 365 MB/s each: more than a network of 300, less than memory.
	cfg := PoolConfig{
		System: &nopfsSystem, Values: Values{"network": 300}, Samples: 4, Jobs: 1,
		Ranks: 2, Epochs: 1, GlobalBatch: 4, Memory: memory,
	}
	pool := newNoPFS(cfg)
	b := &Batch{IDs: []draw.SampleID{0, 1, 2, 3}, Rank: []int32{0, 0, 0, 0}}
	answers := make([]Answer, 4)
	for pass := range 2 {
		pool.Batch(b, answers)
		for i, a := range answers {
			if want := pass == 0 || memory.Home(b.IDs[i]) != 0; a.Read != want {
				t.Errorf("pass %d, sample %d of rank %d: read %v, want %v", pass, i,
					memory.Home(b.IDs[i]), a.Read, want)
			}
		}
	}
}

// TestNoPFSProperties checks for any sizes and ranks: no memory holds more than its room, a
// sample's homes are workers that read it, each once, and no worker has room left for a sample that
// it reads without being its home.
func TestNoPFSProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ranks := rapid.IntRange(1, 5).Draw(r, "ranks")
		samples := rapid.IntRange(ranks, 60).Draw(r, "samples")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 9), samples, samples).Draw(r, "sizes")
		room := rapid.SliceOfN(rapid.Int64Range(0, 60), ranks, ranks).Draw(r, "room")
		accesses := nopfsCounts(samples, rapid.IntRange(1, 6).Draw(r, "epochs"), ranks)
		left := slices.Clone(room)
		homes := nopfsPlace(accesses, samples, room,
			func(id draw.SampleID) int64 { return sizes[id] })
		for id, all := range homes {
			for k, rank := range all {
				reads := slices.ContainsFunc(accesses,
					func(a nopfsAccess) bool { return int(a.id) == id && a.rank == rank })
				if twice := slices.Contains(all[:k], rank); !reads || twice {
					r.Fatalf("sample %d lies with rank %d, which reads it: %v, twice: %v", id, rank,
						reads, twice)
				}
				left[rank] -= sizes[id]
			}
		}
		if !slices.Equal(left, room) || slices.Min(left) < 0 {
			r.Fatalf("ranks have %v left, and say %v", left, room)
		}
		for _, a := range accesses {
			if !slices.Contains(homes[a.id], a.rank) && room[a.rank] >= sizes[a.id] {
				r.Fatalf("rank %d has room for sample %d", a.rank, a.id)
			}
		}
	})
}
