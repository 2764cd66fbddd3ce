package rank

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
)

// twoSets returns data sets of small and of large samples.
func twoSets() []mpicache.DataSet {
	return []mpicache.DataSet{
		{Samples: 1000, Size: func(id draw.SampleID) int64 { return 100 + int64(id)%5000 }},
		{Samples: 100, Size: func(draw.SampleID) int64 { return 300_000 }},
	}
}

func TestMemoryIsDivided(t *testing.T) {
	const n = 3
	auto, half := memory.Request{Memory: memory.Auto, Window: memory.AutoWindow},
		memory.Request{Memory: "50%", Window: memory.AutoWindow}
	whole := twoSets()
	all, err := memory.Request{Memory: "100%", Window: memory.AutoWindow}.Divide(whole, nil, 1,
		n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		if owned := ownedBytes(&whole[i], n, 1); !slices.Equal(whole[i].PartitionBytes, owned) {
			t.Errorf("100 %% of data set %d: partitions of %d, owned are %d", i,
				whole[i].PartitionBytes, owned)
		}
	}
	halves := twoSets()
	if _, err := half.Divide(halves, nil, 1, n); err != nil ||
		halves[1].PartitionBytes[2] != whole[1].PartitionBytes[2]/2 {
		t.Errorf("50 %%: %d, %v, and 100 %% is %d", halves[1].PartitionBytes, err,
			whole[1].PartitionBytes)
	}
	// A rank with little memory, one with more than it needs, and one with plenty: all agree on all
	// sizes.
	slabs := []int64{4 << 20, all.SlabBytes, 1 << 50}
	var agreed [2][]int64
	for rank := range n {
		data := twoSets()
		plan, err := auto.Divide(data, slabs, rank, n)
		if err != nil {
			t.Fatal(err)
		}
		if sum := plan.CacheBytes + plan.WindowBytes; plan.SlabBytes > slabs[rank] ||
			sum+sum/20 > plan.SlabBytes || sum < plan.SlabBytes/10*9 {
			t.Errorf("rank %d: %+v of %d", rank, plan, slabs[rank])
		}
		for i := range data {
			if agreed[i] == nil {
				agreed[i] = data[i].PartitionBytes
			}
			if !slices.Equal(agreed[i], data[i].PartitionBytes) {
				t.Errorf("rank %d takes the partitions of data set %d for %d, rank 0 for %d", rank,
					i, data[i].PartitionBytes, agreed[i])
			}
			for r := 1; r < n; r++ {
				if data[i].PartitionBytes[r] != whole[i].PartitionBytes[r] {
					t.Errorf("rank %d has %d bytes of data set %d, and owns %d", r,
						data[i].PartitionBytes[r], i, whole[i].PartitionBytes[r])
				}
			}
		}
		if rank == 1 && plan != all {
			t.Errorf("rank 1: %+v, want %+v", plan, all)
		}
	}
	// The slab has the requested size, even if the data need less.
	fixed := memory.Request{Memory: "1GiB", Window: memory.AutoWindow}
	if plan, err := fixed.Divide(twoSets(), []int64{1 << 30, 1 << 30, 1 << 30}, 0,
		n); err != nil || plan.SlabBytes != 1<<30 {
		t.Errorf("1GiB: %+v, %v", plan, err)
	}
	none := memory.Request{Memory: "0", Window: memory.AutoWindow}
	if plan, err := none.Divide(twoSets(), []int64{0, 0, 0}, 0, n); err != nil ||
		plan.CacheBytes != 0 || plan.WindowBytes == 0 || plan.SlabBytes < plan.WindowBytes {
		t.Errorf("0: %+v, %v", plan, err)
	}
}

// newTestRank returns the only rank of a cache.
func newTestRank(t *testing.T, amount string) *process {
	transport := ranks.NewMux(transport.NewLocal(1)[0])
	t.Cleanup(func() { transport.Close() })
	opt := &Options{CacheOptions: CacheOptions{Memory: amount, Window: memory.AutoWindow}}
	opt.Session = t.TempDir()
	r := newProcess(opt, transport)
	r.folder.dir = session.RankFolder(opt.Session, transport.Rank())
	r.logger = slog.New(slog.DiscardHandler)
	r.memory.ranksHere = 1
	r.tellParts()
	if err := os.Mkdir(r.folder.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMemoryAutoIsPlanned(t *testing.T) {
	r := newTestRank(t, memory.Auto)
	r.opt.Trainers.Memory = "1MiB"
	cfg := mpicache.Config{Transport: r.transport, Data: twoSets()}
	plan, err := r.planMemory(t.Context(), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := r.opt.asks().Divide(twoSets(), []int64{1 << 60}, 0, 1)
	if err != nil || plan != whole {
		t.Errorf("planMemory = %+v, %v, want what the data needs, %+v", plan, err, whole)
	}
}

// TestMemoryOfOneRankIsTooSmall checks that all ranks end when one has too little memory, and that
// one reports the reason.
func TestMemoryOfOneRankIsTooSmall(t *testing.T) {
	const n = 3
	for memory, sentence := range map[string]string{
		memory.Auto: "leaves nothing for the cache: ask for more memory (--mem of Slurm), or lower " +
			"--tune trainer-memory",
		"1GiB": "the 9000000 ranks on this node would need 8.6 PiB of memory, and there are ",
	} {
		errs := make([]error, n)
		var all sync.WaitGroup
		for i, transport := range transport.NewLocal(n) {
			r := newTestRank(t, memory)
			r.transport = ranks.NewMux(transport)
			r.tellParts()
			if i > 0 { // the node is too small for two of them
				r.opt.Trainers.Memory, r.memory.ranksHere = "900TiB", 9_000_000
			}
			all.Go(
				func() {
					_, errs[i] = r.planMemory(t.Context(), &mpicache.Config{Data: twoSets()})
				})
		}
		all.Wait()
		if errs[1] == nil || !strings.Contains(errs[1].Error(), sentence) {
			t.Errorf("--memory %s: rank 1 returned %v, want %q", memory, errs[1], sentence)
		}
		for _, i := range []int{0, 2} {
			if exit.Code(errs[i]) != exit.Failure || exit.Speaks(errs[i]) {
				t.Errorf("--memory %s: rank %d returned %v", memory, i, errs[i])
			}
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}

func TestMemoryGatherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestRank(t, memory.Auto)
		group := transport.NewLocal(2)
		r.transport = ranks.NewMux(group[0])
		r.tellParts()
		gone := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		r.logger = messages.New(writerFunc(func(line []byte) {
			if !strings.Contains(string(line), "waiting for the other ranks to begin") ||
				!strings.Contains(string(line), "(there: 1, of: 2)") {
				t.Errorf("the log has %s", line)
			}
			cancel(gone)
		}), messages.Options{})
		if _, err := exchange(ctx, r, channelIntro, "1"); !errors.Is(err, gone) {
			t.Errorf("gather without the other rank: %v", err)
		}
		for _, transport := range group {
			transport.Close()
		}
	})
}
