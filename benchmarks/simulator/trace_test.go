package simulator

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// writeArray writes a file of NumPy's format and returns its path.
func writeArray(t *testing.T, descr, shape string, numbers any) string {
	t.Helper()
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr,
		shape)
	var file bytes.Buffer
	file.WriteString("\x93NUMPY\x01\x00")
	for _, part := range []any{uint16(len(header)), []byte(header), numbers} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "a.npy")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadTrace(t *testing.T) {
	got, err := LoadTrace(TraceFiles{
		Losses:     writeArray(t, "<f4", "2, 3", []float32{1, 2, 3, 4, 5, 0}),
		Labels:     writeArray(t, "<i8", "3,", []int64{0, 1, 1}),
		Embeddings: writeArray(t, "<f4", "2, 3, 1", []float32{-1, -2, -3, -4, -5, -6}),
		SizesBytes: writeArray(t, "<i4", "3,", []int32{10, 20, 30}),
	})
	want := &Trace{
		Losses: [][]float32{{1, 2, 3}, {4, 5, 0}}, Labels: []int32{0, 1, 1},
		SizesBytes: []int64{10, 20, 30},
		Embeddings: [][][]float32{{{-1}, {-2}, {-3}}, {{-4}, {-5}, {-6}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestLossesThatAreNotFinite checks that NaN and the infinities count as not reported, in a feed of
// losses and in a pool.
func TestLossesThatAreNotFinite(t *testing.T) {
	for _, system := range []string{"rankpool", "shade"} {
		var before *Result
		for _, strange := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			numbers := make([]float32, 3*64)
			for i := range numbers {
				numbers[i] = float32(i * 7 % 13)
				if i%5 == 0 {
					numbers[i] = float32(strange)
				}
			}
			trace, err := LoadTrace(TraceFiles{Losses: writeArray(t, "<f4", "3, 64", numbers)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Run(
				Config{
					Trace: trace, System: mustFind(t, system), Sampler: "pads", Ranks: 2,
					BatchSize: 4, Capacity: 0.3,
				})
			if err != nil {
				t.Fatal(err)
			}
			if before != nil && !reflect.DeepEqual(got, before) {
				t.Errorf("%s: with losses of %v the result is another one than with NaN", system,
					strange)
			}
			before = got
		}
	}
}

// TestLoadTraceErrors checks that each error names what is wrong and where.
func TestLoadTraceErrors(t *testing.T) {
	losses := writeArray(t, "<f4", "2, 2", []float32{1, -2, 3, 4})
	for _, c := range []struct {
		files TraceFiles
		want  string
	}{
		{
			TraceFiles{Losses: writeArray(t, "<f4", "4,", []float32{1, 2, 3, 4})},
			"holds float32 (4,), but losses are floats [epochs, samples]",
		},
		{TraceFiles{Losses: writeArray(t, "<i4", "1, 1", []int32{1})}, "holds int32 (1, 1), but losses"},
		{
			TraceFiles{Losses: writeArray(t, "<f4", "0, 2", []float32{})},
			"holds float32 (0, 2), but losses",
		},
		{TraceFiles{Losses: "none.npy"}, "simulator: npy: open none.npy"},
		{
			TraceFiles{Losses: losses, Labels: writeArray(t, "<i4", "3,", []int32{1, 2, 3})},
			"holds 3 labels, but there are losses of 2 samples",
		},
		{
			TraceFiles{Losses: losses, Labels: writeArray(t, "<f4", "2,", []float32{1, 2})},
			"holds float32 (2,), but labels are integers [samples]",
		},
		{
			TraceFiles{Losses: losses, Labels: writeArray(t, "<i4", "1, 2", []int32{1, 2})},
			"holds int32 (1, 2), but labels",
		},
		{
			TraceFiles{Losses: losses, Labels: writeArray(t, "<i4", "2,", []int32{1, -1})},
			"sample 1 has -1, but labels are in [0, ",
		},
		{
			TraceFiles{Losses: losses, SizesBytes: writeArray(t, "<i8", "2,", []int64{5, 0})},
			"sample 1 has 0, but sizes are in [1, ",
		},
		{TraceFiles{Losses: losses, SizesBytes: writeArray(t, "<i8", "1,", []int64{5})}, "holds 1 sizes"},
		{TraceFiles{Losses: losses, Embeddings: writeArray(t, "<f4", "2, 2",
			[]float32{1, 2, 3, 4})}, "but embeddings are floating-point"},
		{TraceFiles{Losses: losses, Embeddings: writeArray(t, "<i4", "2, 2, 1",
			[]int32{1, 2, 3, 4})}, "but embeddings are floating-point"},
		{
			TraceFiles{Losses: losses, Embeddings: writeArray(t, "<f4", "1, 2, 1",
				[]float32{1, 2})},
			"embeddings of 1 epochs and 2 samples, but there are losses of 2 epochs",
		},
	} {
		got, err := LoadTrace(c.files)
		if err == nil || !strings.HasPrefix(err.Error(), "simulator: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v; want an error with %q", got, err, c.want)
		}
	}
}
