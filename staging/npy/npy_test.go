package npy

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// file returns a file of a version, with the given type, shape and data.
func file(version byte, descr, shape, data string) string {
	header := "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }\n"
	if version == 1 {
		return magic + "\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(header)))) +
			header + data
	}
	return magic + string([]byte{version, 0}) +
		string(binary.LittleEndian.AppendUint32(nil, uint32(len(header)))) + header + data
}

const two = "\x00\x00\x80\x3f\x00\x00\x00\x40" // float32 1, 2

func TestReadFloats(t *testing.T) {
	for _, c := range []struct {
		name, file string
		shape      []int
		want       []float32
	}{
		{"float32, version 1", file(1, "'<f4'", "(1, 2)", two), []int{1, 2}, []float32{1, 2}},
		{"Python 2", file(1, `u"<f4"`, "(2L, 1L)", two), []int{2, 1}, []float32{1, 2}},
		{"version 2", file(2, "'<f4'", "(2,)", two), []int{2}, []float32{1, 2}},
		{"version 3", file(3, "'<f4'", "(2, 1, 1)", two), []int{2, 1, 1}, []float32{1, 2}},
		{
			"float16", file(1, "'<f2'", "(4,)", "\x00\x3c\x00\xc0\x01\x00\x00\x7c"),
			[]int{4},
			[]float32{1, -2, 0x1p-24, float32(math.Inf(1))},
		},
		{
			"float64", file(1, "'<f8'", "(1,)", "\x00\x00\x00\x00\x00\x00\xe0\x3f"),
			[]int{1},
			[]float32{0.5},
		},
		{"nothing", file(1, "'<f4'", "(0, 3)", ""), []int{0, 3}, []float32{}},
	} {
		path := filepath.Join(t.TempDir(), "a.npy")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := Read(path)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := a.Float32s()
		if err != nil || !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(a.Shape, c.shape) {
			t.Errorf("%s: %v of shape %v, %v; want %v of %v", c.name, got, a.Shape, err, c.want, c.shape)
		}
		if _, err := a.Int64s(); err == nil {
			t.Errorf("%s: was read as integers", c.name)
		}
	}
}

func TestReadIntegers(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []int64
	}{
		{"uint8", file(1, "'|u1'", "(2,)", "\x01\xff"), []int64{1, 255}},
		{"int32", file(1, "'<i4'", "(2,)", "\x07\x00\x00\x00\xff\xff\xff\xff"), []int64{7, -1}},
		{"int64", file(1, "'<i8'", "(1,)", "\x00\x00\x00\x00\x00\x00\x00\x80"), []int64{math.MinInt64}},
	} {
		a, err := parse([]byte(c.file))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, err := a.Int64s(); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
		if _, err := a.Float32s(); err == nil {
			t.Errorf("%s: was read as floating-point numbers", c.name)
		}
	}
}

// TestHalf checks binary16's limits, and that nothing is rounded.
func TestHalf(t *testing.T) {
	for bits, want := range map[uint16]float64{
		0x0000: 0, 0x03ff: 1023 * 0x1p-24, 0x0400: 0x1p-14, 0x3555: 0.333251953125, 0x7bff: 65504,
		0xfbff: -65504, 0xfc00: math.Inf(-1),
	} {
		if got := half(bits); got != want {
			t.Errorf("%#04x is %v, want %v", bits, got, want)
		}
	}
	if !math.IsNaN(half(0x7e00)) || !math.Signbit(half(0x8000)) {
		t.Error("NaN or -0 is lost")
	}
}

func TestErrors(t *testing.T) {
	good := file(1, "'<f4'", "(1, 2)", two)
	for bad, want := range map[string]string{
		"":                                 "is not a .npy file",
		"no magic, no magic":               "not a file in NumPy",
		magic + "\x01\x00":                 "truncated in its header",
		magic + "\x02\x00\x10":             "truncated in its header",
		magic + "\x04\x00\x10\x00\x00\x00": "version 4",
		good[:30]:                          "truncated in its header",
		good[:len(good)-1]: "has 7 bytes of data, which is not what shape (1, 2) of " +
			"float32 takes",
		good + "x":                                        "has 9 bytes of data",
		file(1, "'<f4'", "()", two[:4]):                   "has 0 dimensions, not 1 to 3",
		file(1, "'<f4'", "(1, -2)", two):                  "has a header without type, order or shape",
		file(1, "'<f4'", "(1, 1, 1, 2)", two):             "4 dimensions",
		file(1, "'<f4'", "(4294967296, 4294967296)", two): "cut off or damaged",
		file(1, "'<f4'", "(99999999999999999999,)", two):  "has the shape (99999999999999999999,)",
		file(1, "'>f4'", "(2,)",
			two): `type ">f4"; known are float16, float32, float64, uint8, int32, int64`,
		file(1, "[('a', '<f4')]", "(2,)", two):             "holds records",
		strings.Replace(good, "'descr'", "'desks'", 1):     "has a header without type, order or shape",
		strings.Replace(good, "'shape'", "'shade'", 1):     "has a header without type, order or shape",
		strings.Replace(good, "r': False", "r': True ", 1): "Fortran's order",
	} {
		if a, err := parse([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", bad, a, err, want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.npy")); err == nil ||
		!strings.HasPrefix(err.Error(), "npy: open ") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(file(1, "'<f4'", "(1, 2)", two)))
	f.Add([]byte(file(2, "'<i8'", "(1,)", two)))
	f.Add([]byte(file(3, "'|u1'", "(2, 2, 2)", two)))
	f.Add([]byte(file(1, "'<f2'", "(0, 9223372036854775807)", "")))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parse(text)
		if err != nil {
			return
		}
		elements := 1
		for _, n := range a.Shape {
			elements *= n
		}
		floats, err := a.Float32s()
		if err != nil {
			integers, err := a.Int64s()
			if err != nil || len(integers) != elements {
				t.Errorf("%v: %d integers, %v", a, len(integers), err)
			}
		} else if len(floats) != elements {
			t.Errorf("%v: %d numbers", a, len(floats))
		}
	})
}
