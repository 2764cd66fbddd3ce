package stage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestPieceSums writes a file in random portions: the sums are those of its pieces and of all of
// it.
func TestPieceSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data")
		h := newPieceSums(rapid.Int64Range(1, 250).Draw(t, "cut"))
		for rest := data; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "portion")
			_, _ = h.Write(rest[:n])
			rest = rest[n:]
		}
		h.end()
		if h.whole.Sum64() != xxh3.Hash(data) {
			t.Fatalf("another checksum of all of it")
		}
		for k, sum := range h.sums {
			from := int64(k) * h.cutBytes
			if want := xxh3.Hash(data[from:min(from+h.cutBytes, int64(len(data)))]); sum != want {
				t.Fatalf("piece %d has %x, want %x", k, sum, want)
			}
		}
		if want := (int64(len(data)) + h.cutBytes - 1) / h.cutBytes; int64(len(h.sums)) != want {
			t.Fatalf("%d pieces, want %d", len(h.sums), want)
		}
	})
}

// bigTree is a folder with one file of a million random bytes.
func bigTree(t *testing.T) (src string, sum uint64) {
	t.Helper()
	src = filepath.Join(t.TempDir(), "src")
	data := make([]byte, 1_000_003)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data) // never fails
	mustDo(t, os.MkdirAll(src, 0o755))
	mustDo(t, os.WriteFile(filepath.Join(src, "big"), data, 0o644))
	return src, xxh3.Hash(data)
}

// TestPiecesAreReadByAll stages one large file to four ranks: each reads a quarter of it, and the
// copies have its checksum.
func TestPiecesAreReadByAll(t *testing.T) {
	src, sum := bigTree(t)
	for _, verify := range []bool{true, false} {
		base := t.TempDir()
		reports, errs := stageAll(4, src, base, func(_ int, o *Options) {
			o.Mode, o.CutBytes, o.NoVerify = Replicate, 50_000, !verify
		})
		mustDo(t, errors.Join(errs...))
		r := reports[0]
		if r.StorageBytes != 1_000_003 || r.StorageReads != 1 || r.Copied != 4 {
			t.Errorf("%+v", r)
		}
		for rank, one := range r.Ranks {
			if quarter := one.StorageBytes > 240_000 && one.StorageBytes < 260_010; quarter != verify {
				t.Errorf("with verify %v rank %d reads %d", verify, rank, one.StorageBytes)
			}
			got, err := System{}.Attribute(filepath.Join(base, fmt.Sprint(rank), "big"), SumAttribute)
			if err == nil && string(got) != fmt.Sprintf("%016x", sum) {
				t.Errorf("rank %d keeps the checksum %s, want %016x", rank, got, sum)
			}
		}
	}
}

// TestFaultsOfPieces damages one of many pieces: the file fails on the ranks where it is damaged,
// and the next run copies it.
func TestFaultsOfPieces(t *testing.T) {
	for _, test := range []struct {
		name, want string
		fault      func(o *Options, src string)
		failed     int64
	}{
		{"a disk that lies", "reads back with another checksum", func(o *Options, _ string) {
			o.Target = newFaulty(on("flip", "/1/", errFlip, 1))
		}, 1},
		{"storage's error", "cannot be read: input/output error", func(o *Options, _ string) {
			var mu sync.Mutex
			reads := 0
			o.Source = newFaulty(func(op, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				if reads++; op == "read" && reads > 20 {
					return unix.EIO
				}
				return nil
			})
		}, 3},
		{
			"another checksum in the index", "its index says 0000000000000001",
			func(o *Options, src string) {
				o.Plan = func(ctx context.Context) (*Plan, error) {
					plan, err := Walk(ctx, System{}, src, WalkOptions{})
					plan.Items[1].Sum = 1
					return plan, err
				}
			}, 3,
		},
		{"a change in the middle", "changed while the data set was staged", func(o *Options, src string) {
			change := sync.OnceValue(func() error { return os.Truncate(filepath.Join(src, "big"), 999_999) })
			o.Source = newFaulty(func(op, _ string) error {
				if op == "read" {
					return change()
				}
				return nil
			})
		}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			src, _ := bigTree(t)
			base := t.TempDir()
			reports, errs := stageAll(3, src, base, func(_ int, o *Options) {
				o.Mode, o.CutBytes = Replicate, 50_000
				test.fault(o, src)
			})
			mustDo(t, errors.Join(errs...))
			if r := reports[0]; r.Failed != test.failed || len(r.Failures) != 1 ||
				!strings.Contains(r.Failures[0].Reason, test.want) {
				t.Errorf("%+v, %+v", r, r.Failures)
			}
			for rank := range 3 {
				noPartOf(t, src, filepath.Join(base, fmt.Sprint(rank)))
			}
			_, errs = stageAll(3, src, base, func(_ int, o *Options) {
				o.Mode, o.CutBytes = Replicate, 50_000
			})
			mustDo(t, errors.Join(errs...))
			checkSame(t, describe(t, src), describe(t, filepath.Join(base, "1")))
		})
	}
}

// A clock advances when somebody waits for it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pause(_ context.Context, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// TestLimits stages random trees with limits, each rank with its own clock. No rank reads more than
// its part of the job's limits allows; and the job takes as long as its limits imply, so it uses
// all of them.
func TestLimits(t *testing.T) {
	checkTrees(t, func(t *rapid.T, dir, src string) {
		n := rapid.IntRange(1, 4).Draw(t, "ranks")
		rate := rapid.SampledFrom([]float64{0, 1e4, 1e6}).Draw(t, "bytes a second")
		opens := rapid.SampledFrom([]float64{0, 5, 100}).Draw(t, "opens a second")
		mode := rapid.SampledFrom([]Mode{Partition, Replicate}).Draw(t, "mode")
		clocks, sources := make([]*clock, n), make([]*faulty, n)
		reports, errs := stageAll(n, src, dir, func(rank int, o *Options) {
			clocks[rank], sources[rank] = &clock{at: time.Unix(1, 0)}, newFaulty(nothing)
			o.Mode, o.MaxBytesPerSecond, o.MaxOpensPerSecond = mode, rate, opens
			// one waits at a time
			o.now, o.pause, o.Source, o.Readers = clocks[rank].now, clocks[rank].pause, sources[rank], 1
		})
		r := reports[0]
		mustDo(t, errs[0])
		allOpens, longest := 0, 0.0
		for rank := range n {
			for _, k := range sources[rank].opens {
				allOpens += k
			}
			longest = max(longest, clocks[rank].now().Sub(time.Unix(1, 0)).Seconds())
		}
		if r.StorageBytes == 0 {
			return
		}
		// A rank's part of the limit is its part of the bytes, holes included, so all ranks finish at the
		// same time: after what the limit implies, less a burst of 0.1 s and less the last chunk.
		atLeast, atMost := 0.0, 0.2
		if rate > 0 {
			atLeast, atMost = float64(r.StorageBytes-int64(n)*4096)/rate-0.1,
				atMost+float64(r.TotalBytes)/rate
		}
		if opens > 0 {
			atLeast, atMost = max(atLeast, float64(allOpens-n)/opens-0.1), atMost+float64(allOpens)/opens
		}
		holes := r.StorageBytes < r.TotalBytes
		if !holes && longest < atLeast-1e-6 || longest > atMost {
			t.Fatalf("%d bytes and %d opens took %v s, want between %v and %v", r.StorageBytes, allOpens,
				longest, atLeast, atMost)
		}
	})
}

// TestLimitOfTheOneThatReads checks that the only rank that lacks something gets all of the limit.
func TestLimitOfTheOneThatReads(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	_, errs := stageAll(4, src, base, func(_ int, o *Options) { o.Mode = Replicate })
	mustDo(t, errs[0])
	mustDo(t, os.Remove(filepath.Join(base, "2", "large")))
	clocks := make([]*clock, 4)
	_, errs = stageAll(4, src, base, func(rank int, o *Options) {
		clocks[rank] = &clock{at: time.Unix(1, 0)}
		o.Mode, o.MaxBytesPerSecond, o.now, o.pause, o.Readers = Replicate, 1000, clocks[rank].now,
			clocks[rank].pause, 1
	})
	mustDo(t, errs[0])
	for rank, c := range clocks {
		took := c.now().Sub(time.Unix(1, 0)).Seconds()
		if rank == 2 && (took < 20 || took > 25) || rank != 2 && took != 0 {
			t.Errorf("rank %d waited %v s for its part of 25 s", rank, took)
		}
	}
}

func TestSparseStaysSparse(t *testing.T) {
	src, base := filepath.Join(t.TempDir(), "src"), t.TempDir()
	mustDo(t, os.Mkdir(src, 0o755))
	f, err := os.Create(filepath.Join(src, "holes"))
	mustDo(t, err)
	mustDo(t, f.Truncate(64<<20))
	_, err = f.WriteAt([]byte("data"), 32<<20)
	mustDo(t, err)
	mustDo(t, f.Close())
	reports, errs := stageAll(2, src, base, func(_ int, o *Options) { o.Mode = Replicate })
	mustDo(t, errs[0])
	if read := reports[0].StorageBytes; read > 1<<20 {
		t.Errorf("%d bytes were read of a file of holes", read)
	}
	for rank := range 2 {
		info, err := System{}.Lstat(filepath.Join(base, fmt.Sprint(rank), "holes"))
		mustDo(t, err)
		if info.Blocks > 1<<20 || info.Size != 64<<20 {
			t.Errorf("rank %d: %d bytes, %d allocated", rank, info.Size, info.Blocks)
		}
	}
	checkSame(t, sums(t, src), sums(t, filepath.Join(base, "1")))
}
