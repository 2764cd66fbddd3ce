package simulator

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	kB = 1_000
	ms = time.Millisecond
)

// byHand is a machine whose times are easy to compute: a step of 10 ms, and one reader per rank,
// which gets 1 MB/s alone.
func byHand() *Cluster {
	return &Cluster{
		SampleBytes: kB,
		Trainer:     Trainer{BatchSize: 1, Step: 10 * ms},
		Loader:      Loader{Workers: 1, PrefetchFactor: 2},
		Storage:     Storage{Curve: [][2]int64{{1, 1000 * kB}}},
	}
}

// epochs runs epochs of equal batches, and returns the time of each in seconds.
func epochs(clock *Clock, n, batches int, drain bool, loads ...Load) []float64 {
	seconds := make([]float64, n)
	for e := range seconds {
		for range batches {
			clock.Batch(loads)
		}
		seconds[e] = clock.EndEpoch(drain)
	}
	return seconds
}

func TestClockByHand(t *testing.T) {
	one := Load{StorageBytes: 4 * kB, Reads: 1} // 4 ms of the storage
	ten := Load{StorageBytes: 40 * kB, Reads: 10}
	for _, c := range []struct {
		name    string
		change  func(*Cluster)
		batches int
		loads   []Load
		want    time.Duration
	}{
		{"nothing to load", func(*Cluster) {}, 5, []Load{{}}, 50 * ms},
		{"no batch", func(*Cluster) {}, 0, []Load{{}}, 0},
		{"compute-bound: the first load and all steps", func(*Cluster) {}, 5, []Load{one}, 54 * ms},
		{"storage-bound: all loads and the last step", func(*Cluster) {}, 5, []Load{ten}, 210 * ms},
		{"two ranks share the storage", func(*Cluster) {}, 5, []Load{ten, ten}, 410 * ms},
		{"two ranks get more of it than one", func(c *Cluster) {
			c.Storage.Curve = [][2]int64{{1, 1000 * kB}, {2, 2000 * kB}}
		}, 5, []Load{ten, ten}, 210 * ms},
		{"but one reader not more than one reader's share", func(c *Cluster) {
			c.Storage.Curve = [][2]int64{{1, 1000 * kB}, {2, 2000 * kB}}
		}, 5, []Load{ten, {}}, 210 * ms},
		{
			"the barrier waits for the slowest rank",
			func(c *Cluster) { c.Storage.Curve = nil; c.Memory.BytesPerSecond = 1000 * kB }, 5,
			[]Load{{LocalBytes: 20 * kB}, {LocalBytes: 1 * kB}},
			110 * ms,
		},
		{"latency-bound: 10 reads one after another", func(c *Cluster) {
			c.Storage = Storage{OpenLatency: 1 * ms, ReadLatency: 2 * ms}
		}, 5, []Load{ten}, 160 * ms},
		{"latency-bound: by 5 readers, and none splits a read", func(c *Cluster) {
			c.Storage = Storage{OpenLatency: 10 * ms, ReadLatency: 20 * ms}
			c.Loader.Workers = 5
		}, 1, []Load{{StorageBytes: 11 * kB, Reads: 11}}, 100 * ms},
		{"readers read several batches at a time", func(c *Cluster) {
			c.Storage = Storage{ReadLatency: 40 * ms}
			c.Loader.Workers = 4
		}, 5, []Load{one}, 40*ms + 50*ms},
		{"and get the bandwidth of several", func(c *Cluster) {
			c.Trainer.Step = 1 * ms
			c.Storage.Curve = [][2]int64{{1, 1000 * kB}, {4, 4000 * kB}}
			c.Loader.Workers = 4
		}, 4, []Load{{StorageBytes: 10 * kB, Reads: 1}}, 10*ms + 4*ms},
		{
			"metadata-bound", func(c *Cluster) { c.Storage.OpensPerSecond = 100 }, 3,
			[]Load{{StorageBytes: 1, Reads: 1}, {StorageBytes: 1, Reads: 2}},
			100 * ms,
		},
		{"target limit", func(c *Cluster) {
			c.Storage.Targets, c.Storage.TargetBytesPerSecond = 2, 100*kB
			c.Storage.Curve, c.Loader.Workers = [][2]int64{{1, 1000 * kB}}, 8
		}, 5, []Load{ten}, 5*200*ms + 10*ms},
		{"a package lies on one target", func(c *Cluster) {
			c.Storage = Storage{Targets: 100, TargetBytesPerSecond: 100 * kB}
			c.Loader.Workers = 8
		}, 1, []Load{{StorageBytes: 100*kB + 4*kB, Reads: 4, Packages: 1}}, 1010 * ms},
		{
			"a link, and its latency once a batch",
			func(c *Cluster) {
				c.Network = Network{LinkBytesPerSecond: 1000 * kB, Latency: 3 * ms}
			}, 5,
			[]Load{{RemoteBytes: 20 * kB}},
			5*20*ms + 3*ms + 10*ms,
		},
		{"a link that carries storage", func(c *Cluster) {
			c.Network = Network{LinkBytesPerSecond: 1000 * kB, CarriesStorage: true}
		}, 5, []Load{{RemoteBytes: 20 * kB, StorageBytes: 10 * kB, Reads: 1}}, 5*30*ms + 10*ms},
		{
			"a link that does not",
			func(c *Cluster) { c.Network = Network{LinkBytesPerSecond: 1000 * kB} }, 5,
			[]Load{{RemoteBytes: 20 * kB, StorageBytes: 10 * kB, Reads: 1}},
			5*20*ms + 10*ms,
		},
		{"the all-reduce", func(c *Cluster) { c.Trainer.Reduce = 2 * ms }, 5, []Load{{}}, 60 * ms},
	} {
		cluster := byHand()
		c.change(cluster)
		clock := NewClock(cluster, Nodes{len(c.loads), 1, 1}, 5)
		if got := epochs(clock, 1, c.batches, true, c.loads...)[0]; got != c.want.Seconds() {
			t.Errorf("%s: %v s, want %v", c.name, got, c.want)
		}
	}
}

// Three batches, each of a read of 40 ms, and steps of 10 ms: batch b is loaded from the beginning
// of step b-ahead on.
func TestAhead(t *testing.T) {
	for _, c := range []struct {
		ahead, workers int
		want           time.Duration
	}{
		{1, 4, 3*40*ms + 10*ms}, // one load after another, and the last step
		{2, 4, 2*40*ms + 10*ms}, // batches 0 and 1, then batch 2 from the beginning of step 0 on
		{3, 4, 40*ms + 3*10*ms}, // all at once, and three steps
		// as many as a data loader has workers, times a prefetch factor of 1
		{0, 2, 2*40*ms + 10*ms},
		{3, 1, 3*40*ms + 10*ms},   // one reader
		{100, 4, 40*ms + 3*10*ms}, // more than there are
	} {
		cluster := byHand()
		cluster.Storage = Storage{ReadLatency: 40 * ms}
		cluster.Loader = Loader{Workers: c.workers, PrefetchFactor: 1}
		got := epochs(NewClock(cluster, Nodes{1, 1, 1}, c.ahead), 1, 3, true,
			Load{StorageBytes: 1, Reads: 1})[0]
		if got != c.want.Seconds() {
			t.Errorf("%d ahead, %d workers: %v s, want %v", c.ahead, c.workers, got, c.want)
		}
	}
}

func TestEpochBoundary(t *testing.T) {
	load := Load{StorageBytes: 8 * kB, Reads: 1} // 8 ms beside steps of 10 ms
	if got, want := epochs(NewClock(byHand(), Nodes{1, 1, 1}, 2), 3, 5, true, load),
		[]float64{0.058, 0.058, 0.058}; !slices.Equal(got, want) {
		t.Errorf("with a drain %v, want %v", got, want)
	}
	if got, want := epochs(NewClock(byHand(), Nodes{1, 1, 1}, 2), 3, 5, false, load),
		[]float64{0.058, 0.05, 0.05}; !slices.Equal(got, want) {
		t.Errorf("without a drain %v, want %v", got, want)
	}
}

// Dryden et al., SC 2021, section 4: t_{i,f} = max(avail_i(f), t_{i,f-1} + s/c), avail_i(f) =
// Σ_{k≤f} read_i(k) / p_0, and a read from storage is a fetch, s/(t(γ)/γ), and a write. Where each
// worker has one reader, reads from storage only and all of it, and writes cost nothing, both
// models agree; t_f is when sample f is delivered, so an epoch ends a step later.
func TestNoPFSPerformanceModel(t *testing.T) {
	c, err := LoadCluster("nopfs-sim")
	if err != nil {
		t.Fatal(err)
	}
	const samples, mb = 1000, 1e6
	s := float64(c.SampleBytes) / mb
	for gamma, total := range map[int]float64{1: 330, 2: 730, 4: 1540, 8: 2870} {
		// the paper's, and one that storage does not keep up with
		for _, compute := range []float64{64, 5000} {
			c.Trainer.Step = time.Duration(math.Round(s / compute * 1e9))
			avail, handed := 0.0, math.Inf(-1)
			for range samples {
				avail += s / (total / float64(gamma))
				handed = max(avail, handed+s/compute)
			}
			want := handed + s/compute
			loads := slices.Repeat([]Load{{StorageBytes: c.SampleBytes, Reads: 1}}, gamma)
			got := epochs(NewClock(c, Nodes{gamma, 1, 1}, samples), 1, samples, true, loads...)[0]
			if math.Abs(got/want-1) > 1e-5 {
				t.Errorf("γ = %d, c = %v MB/s: %v s, NoPFS's formula says %v", gamma, compute, got,
					want)
			}
		}
	}
}

// machine draws a cluster and an epoch's loads, [batch][rank].
func machine(t *rapid.T) (*Cluster, [][]Load) {
	n := func(label string, low, high int64) int64 {
		return rapid.Int64Range(low, high).Draw(t, label)
	}
	c := &Cluster{
		SampleBytes: 100 * kB,
		Trainer: Trainer{
			BatchSize: 1, Step: time.Duration(n("step", 1, 1e8)),
			Reduce: time.Duration(n("reduce", 0, 1e6)),
		},
		Loader: Loader{Workers: int(n("workers", 1, 8)), PrefetchFactor: 2},
		Storage: Storage{
			OpenLatency:    time.Duration(n("open", 0, 1e7)),
			ReadLatency:    time.Duration(n("read", 0, 1e7)),
			OpensPerSecond: n("opens", 0, 1e5), Targets: n("targets", 0, 9),
			TargetBytesPerSecond: n("target", 1e6, 1e9),
		},
		Network: Network{
			LinkBytesPerSecond: n("link", 1e6, 1e9), Latency: time.Duration(n("latency", 0, 1e6)),
			CarriesStorage: rapid.Bool().Draw(t, "carries"),
		},
		Memory: Memory{BytesPerSecond: n("memory", 1e7, 1e10)},
	}
	readers := int64(0)
	for range n("points", 1, 4) {
		readers += n("readers", 1, 8)
		c.Storage.Curve = append(c.Storage.Curve, [2]int64{readers, n("bandwidth", 1e6, 1e9)})
	}
	loads := make([][]Load, n("batches", 1, 12))
	ranks := int(n("ranks", 1, 5))
	for b := range loads {
		for range ranks {
			l := Load{LocalBytes: n("local", 0, 1e6), RemoteBytes: n("remote", 0, 1e6)}
			if l.Reads, l.Packages = int32(n("reads", 0, 9)),
				int32(n("packages", 0, 1)); l.requests() > 0 {
				l.StorageBytes = n("storage", 1, 1e6)
			}
			loads[b] = append(loads[b], l)
		}
	}
	return c, loads
}

// run returns the ends of all steps, and the seconds of two epochs.
func run(c *Cluster, loads [][]Load, ahead int, drain bool) (ends []int64, seconds [2]float64) {
	clock := NewClock(c, Nodes{len(loads[0]), 1, 1}, ahead)
	for e := range seconds {
		for _, l := range loads {
			clock.Batch(l)
			ends = append(ends, clock.endNs)
		}
		seconds[e] = clock.EndEpoch(drain)
	}
	return ends, seconds
}

// faster has changes to one value of a machine that let it take less time. Each is made to a copy.
var faster = map[string]func(c *Cluster){
	"step":     func(c *Cluster) { c.Trainer.Step /= 2 },
	"reduce":   func(c *Cluster) { c.Trainer.Reduce = 0 },
	"open":     func(c *Cluster) { c.Storage.OpenLatency /= 3 },
	"read":     func(c *Cluster) { c.Storage.ReadLatency = 0 },
	"opens":    func(c *Cluster) { c.Storage.OpensPerSecond *= 2 },
	"target":   func(c *Cluster) { c.Storage.TargetBytesPerSecond += 12345 },
	"targets":  func(c *Cluster) { c.Storage.Targets *= 2 },
	"link":     func(c *Cluster) { c.Network.LinkBytesPerSecond += 7 },
	"latency":  func(c *Cluster) { c.Network.Latency /= 2 },
	"carries":  func(c *Cluster) { c.Network.CarriesStorage = false },
	"memory":   func(c *Cluster) { c.Memory.BytesPerSecond *= 3 },
	"no limit": func(c *Cluster) { c.Memory.BytesPerSecond, c.Network.LinkBytesPerSecond = 0, 0 },
	"curve": func(c *Cluster) {
		c.Storage.Curve = slices.Clone(c.Storage.Curve)
		for i := range c.Storage.Curve {
			c.Storage.Curve[i][1] = c.Storage.Curve[i][1] * 11 / 10
		}
	},
}

func TestNothingThatGetsFasterMakesAStepEndLater(t *testing.T) {
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range faster {
			if !yield(name) {
				return
			}
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		c, loads := machine(t)
		ahead, drain := rapid.IntRange(1, 5).Draw(t, "ahead"), rapid.Bool().Draw(t, "drain")
		before, _ := run(c, loads, ahead, drain)
		for _, name := range names {
			changed := *c
			faster[name](&changed)
			notLater(t, name, run1(&changed, loads, ahead, drain), before)
		}
		fewer := make([][]Load, len(loads))
		for b, l := range loads {
			for _, x := range l {
				x.LocalBytes, x.RemoteBytes, x.StorageBytes = x.LocalBytes/2, x.RemoteBytes/2,
					(x.StorageBytes+1)/2
				fewer[b] = append(fewer[b], x)
			}
		}
		notLater(t, "half of the bytes", run1(c, fewer, ahead, drain), before)
		if drain {
			notLater(t, "no drain", run1(c, loads, ahead, false), before)
		}
	})
}

func run1(c *Cluster, loads [][]Load, ahead int, drain bool) []int64 {
	ends, _ := run(c, loads, ahead, drain)
	return ends
}

func notLater(t *rapid.T, name string, got, before []int64) {
	for b := range got {
		if got[b] > before[b] {
			t.Fatalf("%s: step %d ends at %d ns, and at %d before it got faster", name, b, got[b],
				before[b])
		}
	}
}

func TestNoEpochBeatsTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, loads := machine(t)
		bytes := int64(0)
		for _, l := range loads {
			for _, x := range l {
				bytes += x.StorageBytes
			}
		}
		bound := c.Bound(Nodes{len(loads[0]), 1, 1}, len(loads), bytes)
		for _, ahead := range []int{1, 3, 100} {
			_, got := run(c, loads, ahead, true)
			for e, seconds := range got {
				if seconds < bound*(1-1e-12) {
					t.Fatalf("%d ahead, epoch %d: %v s, the bound is %v", ahead, e, seconds, bound)
				}
			}
		}
	})
}

// The times of a shipped cluster are the same on every machine, to the nanosecond. The loads are
// those of a cache that gets better.
func TestClockGolden(t *testing.T) {
	c, err := LoadCluster("lustre-1024")
	if err != nil {
		t.Fatal(err)
	}
	clock := NewClock(c, Nodes{64, 1, 256}, 0)
	loads := make([]Load, 64)
	var got []float64
	for e := range 3 {
		for b := range 20 {
			for r := range loads {
				missed := int32((r*7+b*13)%50+200) / int32(e+1)
				kept := int64(256-missed) * c.SampleBytes
				loads[r] = Load{
					LocalBytes: kept * 15 / 16, RemoteBytes: kept / 16,
					StorageBytes: int64(missed) * c.SampleBytes, Reads: missed,
				}
			}
			clock.Batch(loads)
		}
		got = append(got, clock.EndEpoch(e == 0))
	}
	if want := []float64{6.581004851, 5.7656664, 5.588}; !slices.Equal(got, want) {
		t.Errorf("epochs take %v s, want %v", got, want)
	}
}

func TestClockForward(t *testing.T) {
	cluster := byHand()
	cluster.Trainer.Reduce = 2 * ms
	clock := NewClock(cluster, Nodes{1, 2, 1}, 1)
	clock.Batch([]Load{{}})
	clock.Forward(5) // 3 on one of two trainers
	if got, want := clock.EndEpoch(true), (12*ms + 3*10*ms/3).Seconds(); got != want {
		t.Errorf("a step and a forward pass take %v s, want %v", got, want)
	}
}

func TestClockMisuse(t *testing.T) {
	for name, misuse := range map[string]func(){
		"no rank":      func() { NewClock(byHand(), Nodes{0, 1, 1}, 1) },
		"empty batch":  func() { NewClock(byHand(), Nodes{1, 1, 0}, 1) },
		"behind":       func() { NewClock(byHand(), Nodes{1, 1, 1}, -1) },
		"a load short": func() { NewClock(byHand(), Nodes{2, 1, 1}, 1).Batch(make([]Load, 1)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse()
		}()
	}
}
