package rank

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
	"rankpool/slurm"
)

// machine returns the readFile of a machine with 4 GiB and without control groups that has
// freeBytes free at successive looks, the last value forever.
func machine(freeBytes ...int64) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if name != "/proc/meminfo" {
			return nil, fs.ErrNotExist
		}
		free := freeBytes[0]
		if len(freeBytes) > 1 {
			freeBytes = freeBytes[1:]
		}
		return fmt.Appendf(nil, "MemTotal: %d kB\nMemAvailable: %d kB\n", 4<<20, free>>10), nil
	}
}

const reserve4GiB = 64 << 20 // of 4 GiB

// startedAgain returns a rank that finds what rank r left behind.
func startedAgain(t *testing.T, r *process, memory string) *process {
	again := newTestRank(t, memory)
	again.folder.dir, again.opt.Session = r.folder.dir, r.opt.Session
	return again
}

// TestMemoryStaysAfterADeath checks that a rank that is restarted keeps its size when there is
// room, whatever the first check would return.
func TestMemoryStaysAfterADeath(t *testing.T) {
	for _, memory := range []string{"64MiB", "50%"} {
		r := newTestRank(t, memory)
		first, err := r.planMemory(t.Context(), &mpicache.Config{Data: twoSets()})
		if err != nil {
			t.Fatal(err)
		}
		r.memory.noteSlab(first.SlabBytes + 4095) // whole pages
		again := startedAgain(t, r, memory)
		again.memory.readFile = machine(2 << 30)
		if second, err := again.planMemory(t.Context(),
			&mpicache.Config{Data: twoSets()}); err != nil || second != first {
			t.Errorf("--memory %s, restarted: %+v, %v, want %+v", memory, second, err, first)
		}
	}
}

// largeSets returns data sets of which each of two ranks owns some 150 MB.
func largeSets() []mpicache.DataSet {
	sets := twoSets()
	sets[1].Size = func(draw.SampleID) int64 { return 3_000_000 }
	return sets
}

// TestMemoryIsLessAfterADeath checks that a rank allocates no more than it last had, and no more
// than is free, that all ranks agree on it, and that it is recorded for the next restart.
func TestMemoryIsLessAfterADeath(t *testing.T) {
	for _, memory := range []string{"64MiB", "100%", memory.Auto} {
		for name, c := range map[string]struct{ before, free, want int64 }{
			"there is room":              {32 << 20, 2 << 30, 32 << 20},
			"training has grown":         {64 << 20, reserve4GiB + 20<<20, 20 << 20},
			"there is nearly nothing":    {64 << 20, 1 << 20, leastAgain},
			"nothing, but it had little": {8 << 20, 0, 8 << 20},
		} {
			t.Run(
				memory+" "+name,
				func(t *testing.T) { testMemoryAfterADeath(t, memory, c.before, c.free, c.want) })
		}
	}
}

// testMemoryAfterADeath starts two ranks, the first of them after a restart.
func testMemoryAfterADeath(t *testing.T, memory string, beforeBytes, freeBytes, want int64) {
	const n = 2
	partitions, failed := make([][]int64, n), make(chan error, n)
	for i, transport := range transport.NewLocal(n) {
		r := newTestRank(t, memory)
		r.transport = ranks.NewMux(transport)
		r.tellParts()
		r.memory.patience, r.opt.Trainers.Memory = 0, "1MiB"
		if i == 0 {
			r.memory.readFile = machine(freeBytes)
			if err := noteMemory(r.folder.dir, beforeBytes); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			sets := largeSets()
			plan, err := r.planMemory(t.Context(), &mpicache.Config{Data: sets})
			note, _ := MemoryNoted(r.folder.dir)
			if i == 0 && plan.SlabBytes != want || note != plan.SlabBytes ||
				plan.CacheBytes+plan.WindowBytes > plan.SlabBytes {
				err = errors.Join(err, fmt.Errorf("rank %d: %+v, note %d", i, plan, note))
			}
			partitions[i] = slices.Concat(sets[0].PartitionBytes, sets[1].PartitionBytes)
			failed <- err
		}()
	}
	for range n {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(partitions[0], partitions[1]) {
		t.Errorf("rank 0 takes the partitions for %d, rank 1 for %d", partitions[0], partitions[1])
	}
}

// TestRoomIsAwaited checks that a rank waits until training has released its memory, and shares
// what is free with the other ranks on this machine.
func TestRoomIsAwaited(t *testing.T) {
	const slab = 100 << 20
	r := newTestRank(t, memory.Auto)
	r.memory.ranksHere = 2
	var said strings.Builder
	r.logger = messages.New(&said, messages.Options{})
	r.tellParts()
	for i, bytes := range []int64{slab, slab / 2} {
		folder := session.RankFolder(r.opt.Session, i)
		if err := errors.Join(os.MkdirAll(folder, 0o700),
			noteMemory(folder, bytes)); err != nil {
			t.Fatal(err)
		}
	}
	enough := int64(reserve4GiB + slab + slab/2)
	r.memory.readFile = machine(0, enough-1<<10, enough)
	if got, err := r.memory.slabAgain(t.Context(), slab); err != nil || got != slab ||
		strings.Count(said.String(), "waiting for memory") != 1 {
		t.Errorf("with room at the third look: %d, %v; the log has %s", got, err, &said)
	}
	r.memory.patience = 0
	r.memory.readFile = machine(enough - slab/2)
	if got, err := r.memory.slabAgain(t.Context(), slab); err != nil || got != slab*2/3 ||
		!strings.Contains(said.String(), "restarts with less memory") {
		t.Errorf("with two thirds of the room: %d, %v; the log has %s", got, err, &said)
	}
	gone := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	r.memory.patience, r.memory.readFile = time.Hour, machine(0)
	if _, err := r.memory.slabAgain(ctx, slab); !errors.Is(err, gone) {
		t.Errorf("after a signal: %v", err)
	}
}

func TestMemoryNote(t *testing.T) {
	r := newTestRank(t, memory.Auto)
	for text, want := range map[string]int64{
		"5242880": 5 << 20, "5242880 as then": 0, "lots": 0, "-1": 0, "": 0,
	} {
		if err := os.WriteFile(filepath.Join(r.folder.dir, memoryName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, again := r.memory.slabBefore(); again != (want > 0) || again && got != want {
			t.Errorf("slabBefore of %q = %d, %v, want %d", text, got, again, want)
		}
	}
	r.memory.noted = 1
	r.memory.noteSlab(1 << 20)
	if got, again := r.memory.slabBefore(); !again || got != 1<<20 {
		t.Errorf("a slab of 1 MiB was noted as %d, %v", got, again)
	}
}

func TestGiveBack(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		limit, free int64
		filled      int64
		ranks       int
		bytes       int64
		again       time.Duration
	}{
		{512 * mib, 512 * mib, 0, 1, 0, 54687500},
		{512 * mib, 64 * mib, 0, 1, 0, calmLook},
		{512 * mib, 64 * mib, -mib, 1, 0, calmLook},
		{512 * mib, 64 * mib, mib, 1, 0, leastLook},
		{512 * mib, 200 * mib, mib, 1, 0, 16601562},
		{512 * mib, 60 * mib, 0, 1, 36 * mib, leastLook},
		{512 * mib, 0, mib, 2, 48 * mib, leastLook},
		{1 << 40, 500 << 30, 1 << 30, 1, 0, mostLook},
		{1 << 40, 1 << 30, mib, 4, mib << 9, leastLook},
	} {
		bytes, again := giveBack(slurm.Memory{LimitBytes: c.limit, FreeBytes: c.free}, c.filled,
			c.ranks)
		if bytes != c.bytes || again != c.again {
			t.Errorf("%+v: %d bytes, again after %v", c, bytes, again)
		}
	}
}

// TestGiveBackKnowsTheSlab checks that a slab that was given back no longer counts as used, if
// Slurm's number is the only limit.
func TestGiveBackKnowsTheSlab(t *testing.T) {
	t.Setenv("SLURM_MEM_PER_NODE", "300")
	r := newTestRank(t, "250MiB")
	r.memory.readFile = machine(4 << 30)
	const slab = 250 << 20
	bytes, _ := r.memory.giveBack(slab)
	if bytes != 14<<20+32<<20 {
		t.Fatalf("of 250 MiB in 300 it gives %d bytes back", bytes)
	}
	if more, _ := r.memory.giveBack(slab - bytes); more != 0 {
		t.Errorf("then it gives %d bytes more", more)
	}
	if now := r.memory.readMemory(); now.FreeBytes != 300<<20-slab+bytes {
		t.Errorf("then there are %+v", now)
	}
	if n, err := MemoryNoted(r.folder.dir); err != nil || n != slab-bytes {
		t.Errorf("the slab of %d bytes was noted as %d, %v", slab-bytes, n, err)
	}
	if room := r.memory.room(); room != 300<<20 {
		t.Errorf("a slab that is not there has room of %d bytes", room)
	}
}
