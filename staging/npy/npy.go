// Package npy reads arrays of numbers from files of NumPy's .npy format.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// An Array is the content of a file. It is immutable, so it may be used concurrently.
type Array struct {
	Type  string // as in NumPy's dtype: float32, int64, …
	Shape []int  // 1 to 3 lengths; each may be 0

	kind kind
	data []byte // row-major, little-endian, len = product of Shape · kind.bytes
}

// maxDimensions is what a trace needs: embeddings are [epoch][sample][dimension].
const maxDimensions = 3

const magic = "\x93NUMPY"

// What a header says, as Python 3 or 2 writes it. The type of records is a list, which is not read.
var (
	typeField  = regexp.MustCompile(`["']descr["']: *(?:u?["']([^"']+)["']|\[)`)
	orderField = regexp.MustCompile(`["']fortran_order["']: *(True|False)`)
	shapeField = regexp.MustCompile(`["']shape["']: *\(([0-9L, ]*)\)`)
)

// Read reads a file of the format's versions 1 to 3.
//
// It returns an error if the file cannot be read, is damaged, is longer or shorter than its
// shape, or holds a type other than float16, float32, float64, uint8, int32 and int64, is not
// little-endian, not in C order, or has more than 3 dimensions.
//
// Source: NumPy Enhancement Proposal 1 and numpy.lib.format, "Format Version 1.0" to "3.0".
func Read(path string) (*Array, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	a, err := parse(file)
	if err != nil {
		return nil, fmt.Errorf("npy: %s %w", path, err)
	}
	return a, nil
}

// parse returns the array of a file; it keeps a reference to the file's bytes. The text of errors
// follows the file's name.
func parse(file []byte) (*Array, error) {
	header, data, err := split(file)
	if err != nil {
		return nil, err
	}
	a := &Array{data: data}
	descr, order := typeField.FindStringSubmatch(header), orderField.FindStringSubmatch(header)
	shape := shapeField.FindStringSubmatch(header)
	if descr == nil || order == nil || shape == nil {
		return nil, errors.New("has a header without type, order or shape")
	}
	if a.kind, err = kindOf(descr[1]); err != nil {
		return nil, err
	}
	a.Type = a.kind.name
	for _, text := range strings.Fields(strings.NewReplacer("L", " ", ",", " ").Replace(shape[1])) {
		length, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("has the shape (%s)", shape[1])
		}
		a.Shape = append(a.Shape, length)
	}
	switch {
	case len(a.Shape) == 0 || len(a.Shape) > maxDimensions:
		return nil, fmt.Errorf("has %d dimensions, not 1 to %d", len(a.Shape), maxDimensions)
	case order[1] == "True":
		return nil, errors.New("is in Fortran's order; write it with numpy.ascontiguousarray")
	}
	if want, ok := product(a.Shape, a.kind.bytes); !ok || want != len(data) {
		return nil, fmt.Errorf("has %d bytes of data, which is not what shape %s of %s takes: it is "+
			"cut off or damaged", len(data), a.shape(), a.Type)
	}
	return a, nil
}

// split returns the header of a file, a Python dictionary, and its data.
func split(file []byte) (header string, data []byte, err error) {
	truncated := errors.New("is truncated in its header, or is not a .npy file")
	if len(file) < 12 {
		return "", nil, truncated
	}
	at, length := 12, int64(binary.LittleEndian.Uint32(file[8:]))
	switch version := file[len(magic)]; {
	case string(file[:len(magic)]) != magic:
		return "", nil, errors.New("is not a file in NumPy's .npy format")
	case version == 1:
		at, length = 10, int64(binary.LittleEndian.Uint16(file[8:]))
	case version != 2 && version != 3:
		return "", nil, fmt.Errorf("has version %d of NumPy's format; only 1 to 3 are supported", version)
	}
	if length > int64(len(file)-at) {
		return "", nil, truncated
	}
	end := at + int(length)
	return string(file[at:end]), file[end:], nil
}

func kindOf(descr string) (kind, error) {
	if descr == "" {
		return kind{}, errors.New("holds records, not numbers of one type")
	}
	for _, k := range kinds {
		if k.descr == descr {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("holds numbers of NumPy's type %q; known are %s", descr, known())
}

// product multiplies lengths and the size of an element; ok is false if that overflows.
func product(lengths []int, bytes int) (whole int, ok bool) {
	whole = bytes
	for _, n := range lengths {
		if n != 0 && whole > math.MaxInt/n {
			return 0, false
		}
		whole *= n
	}
	return whole, true
}

// String returns type and shape, as in "float32 (10, 2560)".
func (a *Array) String() string { return a.Type + " " + a.shape() }

// shape formats the shape as NumPy does.
func (a *Array) shape() string {
	if len(a.Shape) == 1 {
		return fmt.Sprintf("(%d,)", a.Shape[0])
	}
	words := make([]string, len(a.Shape))
	for i, n := range a.Shape {
		words[i] = strconv.Itoa(n)
	}
	return "(" + strings.Join(words, ", ") + ")"
}
