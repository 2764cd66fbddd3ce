package mpicache

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
)

// packages gives every rank a folder of packages of its own. It must be called before trainers
// connect.
func (c *cluster) packages(faults tierFaults) []*fakeTier {
	var all []*fakeTier
	for _, n := range c.nodes {
		f := &fakeTier{tierFaults: faults, samples: map[draw.SampleID][]byte{}}
		n.cfg.Data[0].Packages, n.cfg.Data[0].PackageBytes,
			n.cfg.Data[0].PackageBlockBytes = f, 1<<20, 8
		all = append(all, f)
	}
	return all
}

// unwritten is a folder of packages to which none may be written.
type unwritten struct {
	Tier
	t *testing.T
}

func (u unwritten) Store(draw.SampleID, []byte, func(error)) bool {
	u.t.Error("a package is written although a sample was not read")
	return true
}

// TestPackageLacksASample makes a package's last two reads end at once, one of them with an error.
func TestPackageLacksASample(t *testing.T) {
	for range 50000 {
		s := &samples{data: &DataSet{Packages: unwritten{t: t}}, closed: true}
		w := packageWrite{samples: s, missing: 2}
		s.reads.Add(1)
		var ready atomic.Int32
		arrive := func(err error) {
			for ready.Add(1); ready.Load() < 2; {
				runtime.Gosched()
			}
			w.arrived(err)
		}
		done := make(chan struct{})
		go func() {
			arrive(nil)
			close(done)
		}()
		arrive(errNoRoom)
		<-done
		if t.Failed() {
			return
		}
	}
}

// TestPackagesChangeNoStream checks that packages, whatever becomes of their files, change nothing
// that is served, that trainers get the right bytes (each checks its own), that all packages that
// were written and read are counted, and that a recording can be replayed.
func TestPackagesChangeNoStream(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		log := &strings.Builder{}
		logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		system := func(cfg *Config) {
			cfg.System, cfg.Sampler, cfg.Scorer = "icache", "icache", "loss"
			cfg.Data[0].BookBytes = int64(ranks) * 4000
			cfg.Log = logger // one for all ranks, since its handler has the lock
		}
		without := newCluster(t, ranks, 400, 4000, system)
		want := without.train(2, 6, 4, "icache")
		without.close()
		for _, faults := range []tierFaults{{}, {refusing: 3}, {flaky: 3}, {broken: true}} {
			t.Run(fmt.Sprintf("%d-ranks/%+v", ranks, faults), func(t *testing.T) {
				log.Reset()
				cl := newCluster(t, ranks, 400, 4000, system)
				files := cl.packages(faults)
				stream := cl.train(2, 6, 4, "icache")
				cl.close()
				if !slices.Equal(stream, want) {
					t.Error("the stream differs from that without packages")
				}
				var sum stats.Sums
				for _, r := range cl.records[:4] {
					count := r.(epochRecord).Count
					sum.Add(count.Sums())
				}
				works := faults == tierFaults{}
				if n := sum[stats.PackageReads]; works && n == 0 || faults.broken && n > 0 ||
					n > sum[stats.PackageWrites] || n > sum[stats.PackageReadBytes] {
					t.Errorf("%v packages read, %v written", n, sum[stats.PackageWrites])
				}
				for rank, f := range files {
					if !f.ended {
						t.Errorf("rank %d: the folder was not given back", rank)
					}
				}
				if warned := strings.Contains(log.String(), "its samples are read one by one"); warned ==
					works {
					t.Errorf("the log has %q", log)
				}
			})
		}
	}
}
