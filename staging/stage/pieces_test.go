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
