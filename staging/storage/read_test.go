package storage

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// memory is a File that returns at most most bytes at a time.
type memory struct {
	data  []byte
	most  int
	calls int
}

func (f *memory) ReadVector(buffers [][]byte, off int64) (n int, err error) {
	f.calls++
	for _, p := range buffers {
		p = p[:min(len(p), f.most-n)]
		more, err := bytes.NewReader(f.data).ReadAt(p, off)
		n, off = n+more, off+int64(more)
		if err != nil {
			return n, nil //nolint:nilerr // as preadv: what there is
		}
	}
	return n, nil
}

func (f *memory) Stat() (int64, int64, error) { return int64(len(f.data)), 0, nil }
func (f *memory) Forget(int64, int64)         {}
func (f *memory) Close() error                { return nil }

// TestReadPieces reads random pieces of a file that returns any number of bytes at a time, and may
// be too short.
func TestReadPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 300_000).Draw(t, "size")
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i * 7 >> 3)
		}
		var pieces []piece
		want, at := 0, int64(0)
		for range rapid.IntRange(1, 6).Draw(t, "pieces") {
			at += rapid.SampledFrom([]int64{0, 1, 512, maxGapBytes, maxGapBytes + 1, -5}).
				Draw(t, "gap")
			at = max(0, at)
			p := piece{
				at,
				make([]byte, rapid.SampledFrom([]int{0, 1, 4, 5000, 40_000}).Draw(t, "length")),
			}
			pieces, at = append(pieces, p), p.end()
			want += len(p.into)
		}
		most := rapid.SampledFrom([]int{999, 70_000, size}).Draw(t, "most")
		got, err := readPieces(&memory{data: data, most: most}, pieces)
		if err != nil || got > want ||
			(got < want) != slices.ContainsFunc(pieces, func(p piece) bool {
				return len(p.into) > 0 && p.end() > int64(size)
			}) {
			t.Fatalf("%d of %d bytes, %v", got, want, err)
		}
		for _, p := range pieces {
			if got == want && len(p.into) > 0 && !bytes.Equal(p.into, data[p.offset:p.end()]) {
				t.Fatalf("the bytes at %d are others", p.offset)
			}
		}
	})
}

// TestReadPiecesTogether checks that a sample's members are read by one request.
func TestReadPiecesTogether(t *testing.T) {
	const jpg, json, cls = 512, 512 + 5120 + 512, 512 + 5120 + 512 + 512 + 512
	data := make([]byte, cls+512)
	copy(data[jpg:], strings.Repeat("j", 5000))
	copy(data[json:], "{}")
	copy(data[cls:], "1")
	m := built("/", dataset.Sample{
		Path: "s.tar", Format: dataset.FormatTar, Offset: jpg, Size: 5003,
		Members: []dataset.Member{
			{Kind: "jpg", Offset: jpg, Size: 5000},
			{Kind: "json", Offset: json, Size: 2},
			{Kind: "cls", Offset: cls, Size: 1},
		},
	})
	file := &memory{data: data, most: len(data)}
	into := make([]byte, m.Size(0))
	got, err := readPieces(file, appendPieces(nil, m, 0, into, nil))
	if err != nil || got != len(into) || file.calls != 1 || string(into[4999:]) != "j{}1" {
		t.Errorf("%d of %d bytes by %d calls, %v", got, len(into), file.calls, err)
	}
}

// TestSystemStorage reads a file into several buffers, and at its end.
func TestSystemStorage(t *testing.T) {
	data := []byte(strings.Repeat("rankpool", 2000))
	path := filepath.Join(t.TempDir(), "f")
	stagingtest.Must(t, os.WriteFile(path, data, 0o644))
	file, err := SystemStorage{}.Open(path)
	stagingtest.Must(t, err)
	defer file.Close()
	a, b := make([]byte, 10), make([]byte, 9000)
	n, err := file.ReadVector([][]byte{a, b}, 4001)
	if err != nil || n != 9010 || !bytes.Equal(a, data[4001:4011]) ||
		!bytes.Equal(b, data[4011:13011]) {
		t.Errorf("a vector: %d, %v", n, err)
	}
	if n, err = file.ReadVector([][]byte{a}, int64(len(data)-4)); err != nil || n != 4 {
		t.Errorf("the last bytes: %d, %v", n, err)
	}
	if n, err = file.ReadVector([][]byte{a}, int64(len(data))); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if size, _, err := file.Stat(); err != nil || size != int64(len(data)) {
		t.Errorf("it has %d bytes, %v", size, err)
	}
	if _, err := (SystemStorage{}).Open(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
