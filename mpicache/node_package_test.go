package mpicache

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
					sum.Add(r.(stats.Epoch).Sums)
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
