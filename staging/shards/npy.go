package shards

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

const npyMagic = "\x93NUMPY"

// maxHeaderBytes is the maximum length of a header: NumPy itself refuses more than 10,000 bytes by
// default.
const maxHeaderBytes = 1 << 20

// ErrNoRows is wrapped by the errors of NPY for a whole array that has no rows to be read in place.
var ErrNoRows = errors.New("it has no rows that can be read in place")

// maxRowBytes is the maximum length of a row.
const maxRowBytes = 1 << 60

// npyType matches the type of an element, such as <f4 or <M8[ns].
var npyType = regexp.MustCompile(`^[<>|=]?([?bBiufcmMSUVO])([0-9]*)(?:\[.*\])?$`)

// An NPYHeader is the header of a .npy file.
type NPYHeader struct {
	Type    string // of an element, as NumPy's descr: <f4; "" for records
	Fortran bool   // column-major order
	Shape   []int64
	Data    int64 // offset of the data, in bytes

	descr any // NumPy's, also for records: see elementBytes
}

// ReadNPYHeader reads the header of a .npy file of sizeBytes bytes.
//
// Errors, whose text follows the file's name: it is not a .npy file of version 1 to 3, or its
// header is damaged.
//
// Source: NumPy Enhancement Proposal 1 and numpy.lib.format, "Format Version 1.0" to "3.0".
func ReadNPYHeader(in io.ReaderAt, sizeBytes int64) (NPYHeader, error) {
	w := newWindow(in, sizeBytes)
	text, err := npyHeader(w)
	if err != nil {
		return NPYHeader{}, err
	}
	literal, ok := parseLiteral(text)
	fields, _ := literal.(map[string]any)
	fortran, hasOrder := fields["fortran_order"].(bool)
	shape, hasShape := lengths(fields["shape"])
	if !ok || fields["descr"] == nil || !hasOrder || !hasShape {
		return NPYHeader{}, errors.New("has a header without type, order or shape")
	}
	h := NPYHeader{Fortran: fortran, Shape: shape, Data: w.pos, descr: fields["descr"]}
	h.Type, _ = h.descr.(string)
	return h, nil
}

// NPY finds the rows of the array in a .npy file of sizeBytes bytes; each row, array[i], is a
// sample.
//
// Errors, whose text follows the file's name: those of ReadNPYHeader; it is longer or shorter than
// its shape says, or has rows without bytes. ErrNoRows: it holds a single number or Python objects,
// or is in column-major order (fortran_order).
func NPY(in io.ReaderAt, sizeBytes int64) (*Contents, error) {
	header, err := ReadNPYHeader(in, sizeBytes)
	if err != nil {
		return nil, err
	}
	rows, rowBytes, err := header.rows()
	if err != nil {
		return nil, err
	}
	data := sizeBytes - header.Data
	if rows == 0 && data == 0 {
		return &Contents{}, nil
	}
	if data/max(rowBytes, 1) != rows || data%max(rowBytes, 1) != 0 {
		return nil, fmt.Errorf("is truncated or damaged: it has %d bytes of data, not what %d rows of "+
			"its type take", data, rows)
	}
	if rowBytes == 0 {
		return nil, errors.New("has rows without bytes")
	}
	c := &Contents{Samples: make([]Range, rows)}
	for i := range c.Samples {
		c.Samples[i] = Range{header.Data + int64(i)*rowBytes, rowBytes}
	}
	return c, nil
}

// npyHeader returns the header, a Python dictionary, and leaves the position at the data.
func npyHeader(w *window) (string, error) {
	var head [12]byte
	fixed := head[:10]
	if err := w.readAt(fixed, 0); err != nil {
		return "", npyError(err)
	}
	if string(head[:len(npyMagic)]) != npyMagic {
		return "", errors.New("is not a file in NumPy's .npy format")
	}
	length := int64(binary.LittleEndian.Uint16(head[8:]))
	switch version := head[len(npyMagic)]; version {
	case 1:
	case 2, 3:
		fixed = head[:12]
		if err := w.readAt(fixed, 0); err != nil {
			return "", npyError(err)
		}
		length = int64(binary.LittleEndian.Uint32(head[8:]))
	default:
		return "", fmt.Errorf("has version %d of NumPy's format; only 1 to 3 are supported", version)
	}
	if length > maxHeaderBytes {
		return "", fmt.Errorf("has a header of %d bytes, the maximum is %d", length, maxHeaderBytes)
	}
	header := make([]byte, min(length, w.size))
	if err := w.readAt(header, int64(len(fixed))); err != nil || int64(len(header)) < length {
		return "", npyError(err)
	}
	return string(header), nil
}

func npyError(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("is truncated in its header, or is not a .npy file")
	}
	return err
}

// rows returns the number of rows, and the length of each in bytes.
func (h *NPYHeader) rows() (rows, rowBytes int64, err error) {
	itemBytes, err := elementBytes(h.descr)
	switch {
	case err != nil:
		return 0, 0, err
	case itemBytes == 0:
		return 0, 0, fmt.Errorf("holds elements of type %v, which have no size", h.descr)
	case len(h.Shape) == 0:
		return 0, 0, fmt.Errorf("holds one element: %w", ErrNoRows)
	case h.Fortran && len(h.Shape) > 1:
		return 0, 0, fmt.Errorf("is in column-major order (fortran_order): %w", ErrNoRows)
	}
	rowBytes, err = times(itemBytes, h.Shape[1:])
	return h.Shape[0], rowBytes, err
}

// elementBytes returns the bytes of an element of NumPy's type: a text, a tuple of a type and a
// shape, or a list of a record's fields, which are tuples of a name, a type and perhaps a shape.
//
// Source: NumPy, numpy.lib.format, descr_to_dtype.
func elementBytes(descr any) (sum int64, err error) {
	switch d := descr.(type) {
	case string:
		return numberBytes(d)
	case pyTuple:
		if len(d) == 2 {
			return fieldBytes(d[0], d[1])
		}
	case []any:
		for _, field := range d {
			f, _ := field.(pyTuple)
			if len(f) < 2 || len(f) > 3 {
				return 0, fmt.Errorf("holds records with the field %v, whose type is unknown", field)
			}
			bytes, err := fieldBytes(f[1], append(f, pyTuple(nil))[2])
			if sum += bytes; err != nil || sum > maxRowBytes {
				return 0, cmp.Or(err, errors.New("holds records that are too large"))
			}
		}
		return sum, nil
	}
	return 0, fmt.Errorf("holds elements of type %v, whose size is unknown", descr)
}

// fieldBytes returns the bytes of a field with a type and a shape, which may be a number.
func fieldBytes(descr, shape any) (int64, error) {
	bytes, err := elementBytes(descr)
	if n, isNumber := shape.(int64); isNumber {
		shape = pyTuple{n}
	}
	dimensions, ok := lengths(shape)
	if err == nil && !ok {
		err = fmt.Errorf("holds records with a field of the shape %v", shape)
	}
	if err != nil {
		return 0, err
	}
	return times(bytes, dimensions)
}

// lengths returns the numbers of a shape, which must not be negative.
func lengths(shape any) (found []int64, ok bool) {
	tuple, ok := shape.(pyTuple)
	for _, length := range tuple {
		n, isNumber := length.(int64)
		found, ok = append(found, n), ok && isNumber && n >= 0
	}
	return found, ok
}

// times returns the bytes of an array of elements.
func times(bytes int64, shape []int64) (int64, error) {
	for _, length := range shape {
		if length > 0 && bytes > maxRowBytes/length {
			return 0, fmt.Errorf("has the shape %v, which is too large", shape)
		}
		bytes *= length
	}
	return bytes, nil
}

// numberBytes returns the bytes of an element that is not a record; text of n characters (U) has 4
// bytes per character.
func numberBytes(descr string) (int64, error) {
	kind := npyType.FindStringSubmatch(descr)
	if kind == nil {
		return 0, fmt.Errorf("holds elements of type %q, whose size is unknown", descr)
	}
	size, err := strconv.ParseInt(kind[2], 10, 32)
	switch {
	case kind[1] == "O":
		return 0, fmt.Errorf("holds Python objects, which have no fixed size: %w", ErrNoRows)
	case kind[1] == "?" && kind[2] == "":
		return 1, nil
	case err != nil:
		return 0, fmt.Errorf("holds elements of type %s, which have no size", descr)
	case kind[1] == "U":
		return 4 * size, nil
	}
	return size, nil
}
