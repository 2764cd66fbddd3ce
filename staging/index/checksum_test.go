package index

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
	"rankpool/staging/storage"
)

func checksums(t testing.TB, m *dataset.Manifest) *dataset.Manifest {
	t.Helper()
	summed, err := Checksums(context.Background(), m, ChecksumOptions{})
	stagingtest.Must(t, err)
	return summed
}

func TestChecksums(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "a/empty", "b/2")
	stagingtest.Must(t, os.Truncate(filepath.Join(root, "a/empty"), 0))
	large := strings.Repeat("0123456789", sumBatchBytes/8) // more than a batch
	stagingtest.Must(t, os.WriteFile(filepath.Join(root, "b/2"), []byte(large), 0o644))
	m := scan(t, root)
	if m.HasChecksums() {
		t.Error("a scan made checksums")
	}
	for _, ranks := range []int{1, 3} {
		var group *Group
		if ranks > 1 {
			group = testGroup(t, ranks)
		}
		var seen []int64
		summed, err := Checksums(context.Background(), m,
			ChecksumOptions{Group: group, Progress: func(n int64) { seen = append(seen, n) }})
		stagingtest.Must(t, err)
		// XXH3 of nothing, Source: xxHash, the reference's sanity checks (seed 0).
		for id, want := range []uint64{
			xxh3.HashString("a/1"), 0x2d06800538d394c2,
			xxh3.HashString(large),
		} {
			if got, known := summed.Checksum(draw.SampleID(id)); !known || got != want {
				t.Errorf("%d ranks, sample %d: %x, %t, want %x", ranks, id, got, known, want)
			}
		}
		if !slices.IsSorted(seen) || len(seen) == 0 || seen[len(seen)-1] != m.TotalBytes() {
			t.Errorf("progress %d of %d", seen, m.TotalBytes())
		}
		if !summed.HasChecksums() || m.HasChecksums() {
			t.Error("the checksums are in the wrong manifest")
		}
	}
}

// TestGoldenChecksums compares with docs/wire/xxh3.txt, which also tests the Python client's own
// XXH3.
func TestGoldenChecksums(t *testing.T) {
	text, err := os.ReadFile("../../docs/wire/xxh3.txt")
	stagingtest.Must(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines[1:] {
		var n int
		var want uint64
		_, err := fmt.Sscanf(line, "%d %x", &n, &want)
		stagingtest.Must(t, err)
		sample := make([]byte, n)
		for i := range sample {
			sample[i] = byte((31*i*i + i) % 251)
		}
		if got := dataset.ChecksumOf(sample); got != want {
			t.Errorf("%d bytes: %x, want %x", n, got, want)
		}
	}
}

// TestChecksumsOfParts checks samples that lie in one file, as parts and as members.
func TestChecksumsOfParts(t *testing.T) {
	path, modTime := "s/0123456789", stagingtest.ModTime.UnixNano()
	root := stagingtest.Tree(t, path)
	m := built(t, root, []string{"s"},
		dataset.Sample{Path: path, ModTime: modTime, Format: dataset.FormatPart, Offset: 2, Size: 4},
		dataset.Sample{
			Path: path, ModTime: modTime, Format: dataset.FormatTar, Offset: 3, Size: 5,
			Members: []dataset.Member{{Kind: "x", Offset: 3, Size: 3}, {Kind: "x", Offset: 10, Size: 2}},
		})
	for _, group := range []*Group{nil, testGroup(t, 2)} {
		summed, err := Checksums(context.Background(), m, ChecksumOptions{Group: group})
		stagingtest.Must(t, err)
		for id, want := range []string{"0123", "12389"} { // of "s/0123456789"
			if got, _ := summed.Checksum(draw.SampleID(id)); got != xxh3.HashString(want) {
				t.Errorf("sample %d is not %q", id, want)
			}
		}
	}
}

func TestChecksumErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   string
	}{
		{"missing", os.Remove, "is missing; index the data set again"},
		{
			"shorter", func(path string) error { return os.Truncate(path, 1) },
			"has 1 bytes, the manifest says 3; index the data set again",
		},
		{
			"longer", func(path string) error { return os.Truncate(path, 9) },
			"has 9 bytes, the manifest says 3; index the data set again",
		},
		{
			"written again", func(path string) error { return os.WriteFile(path, []byte("new"), 0o644) },
			"was modified at",
		},
		{"a folder", func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
		}, "is a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := stagingtest.Tree(t, "a/1", "a/2", "a/3")
			m := scan(t, root)
			stagingtest.Must(t, c.change(filepath.Join(root, "a/2")))
			for _, group := range []*Group{nil, testGroup(t, 2)} {
				summed, err := Checksums(context.Background(), m, ChecksumOptions{Group: group})
				stagingtest.WantError(t, err, "staging: sample 1 (a/2): ", c.want)
				if sample := (*storage.SampleError)(nil); !errors.As(err, &sample) ||
					sample.ID != 1 ||
					summed != nil {
					t.Errorf("%v, %v", summed, err)
				}
				var unreadable []*storage.SampleError
				summed, err = Checksums(context.Background(), m, ChecksumOptions{
					Group: group,
					Unreadable: func(err *storage.SampleError) {
						unreadable = append(unreadable, err)
					},
				})
				stagingtest.Must(t, err)
				_, first := summed.Checksum(0)
				_, second := summed.Checksum(1)
				if !first || second || len(unreadable) != 1 || unreadable[0].ID != 1 {
					t.Errorf("checksums %t %t, unreadable %v", first, second, unreadable)
				}
			}
		})
	}
	ended, end := context.WithCancelCause(context.Background())
	end(errors.New("enough"))
	root := stagingtest.Tree(t, "a/1")
	_, err := Checksums(ended, scan(t, root), ChecksumOptions{})
	stagingtest.WantError(t, err, "staging: checksums of "+root+": enough")
}
