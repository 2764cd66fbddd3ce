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

// An Array is what a file holds. It is not changed after Read, and may be used concurrently.
type Array struct {
	Type  string // as people and NumPy's dtype call it: float32, int64, …
	Shape []int  // 1 to 3 lengths; each may be 0

	kind kind
	data []byte // row-major, little-endian, len = product of Shape · kind.bytes
}

// maxDimensions is what a trace needs: embeddings are [epoch][sample][dimension].
const maxDimensions = 3

// magic begins every file; two bytes with the version of the format follow.
const magic = "\x93NUMPY"

var (
	descrField   = regexp.MustCompile(`'descr': *'([^']*)'`)
	structField  = regexp.MustCompile(`'descr': *\[`)
	fortranField = regexp.MustCompile(`'fortran_order': *(True|False)\b`)
	shapeField   = regexp.MustCompile(`'shape': *\(([0-9, ]*)\)`)
)

// Read reads a file of the format's versions 1 to 3.
//
// It returns an error when the file cannot be read, is damaged, longer or shorter than its shape says, or holds another type than float16,
// float32, float64, uint8, int32 and int64, another byte order than little-endian, another order than C's, or more than 3 dimensions.
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

// parse returns the array of a file; it keeps a reference to the file's bytes. Errors go on after the file's name.
func parse(file []byte) (*Array, error) {
	header, data, err := split(file)
	if err != nil {
		return nil, err
	}
	a := &Array{data: data}
	if a.kind, err = parseType(header); err != nil {
		return nil, err
	}
	a.Type = a.kind.name
	if a.Shape, err = parseShape(header); err != nil {
		return nil, err
	}
	if want, ok := product(a.Shape, a.kind.bytes); !ok || want != len(data) {
		return nil, fmt.Errorf("has %d bytes of data, which is not what shape %s of %s takes: it is cut off or damaged", len(data), a.shape(), a.Type)
	}
	return a, nil
}

// split divides a file into its header, a Python dictionary, and its data.
func split(file []byte) (header string, data []byte, err error) {
	begin := len(magic) + 2
	if len(file) < begin || string(file[:len(magic)]) != magic {
		return "", nil, errors.New("is no file of NumPy's .npy format")
	}
	length := 0
	switch version := file[len(magic)]; {
	case version == 1 && len(file) >= begin+2:
		length = int(binary.LittleEndian.Uint16(file[begin:]))
		begin += 2
	case (version == 2 || version == 3) && len(file) >= begin+4:
		length = int(binary.LittleEndian.Uint32(file[begin:]))
		begin += 4
	case version < 1 || version > 3:
		return "", nil, fmt.Errorf("is of version %d of NumPy's format; 1 to 3 are known", version)
	}
	if length == 0 || length > len(file)-begin {
		return "", nil, errors.New("is cut off in its header")
	}
	return string(file[begin : begin+length]), file[begin+length:], nil
}

func parseType(header string) (kind, error) {
	if structField.MatchString(header) {
		return kind{}, errors.New("holds records, not numbers of one type")
	}
	descr := descrField.FindStringSubmatch(header)
	if descr == nil {
		return kind{}, errors.New("has a header without a type")
	}
	for _, k := range kinds {
		if k.descr == descr[1] {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("holds numbers of NumPy's type %q; known are %s", descr[1], known())
}

func parseShape(header string) ([]int, error) {
	fortran := fortranField.FindStringSubmatch(header)
	field := shapeField.FindStringSubmatch(header)
	if fortran == nil || field == nil {
		return nil, errors.New("has a header without a shape")
	}
	var shape []int
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(field[1]), ","), ",") {
		length, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("has the shape (%s), which is no array of 1 to %d dimensions", field[1], maxDimensions)
		}
		shape = append(shape, length)
	}
	if len(shape) > maxDimensions {
		return nil, fmt.Errorf("has %d dimensions, more than %d", len(shape), maxDimensions)
	}
	if fortran[1] == "True" {
		return nil, errors.New("is in Fortran's order; write it with numpy.ascontiguousarray")
	}
	return shape, nil
}

// product multiplies lengths and the bytes of an element; ok is false when that does not fit.
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

// String returns type and shape as in "float32 (10, 2560)".
func (a *Array) String() string { return a.Type + " " + a.shape() }

// shape is as NumPy prints it.
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
