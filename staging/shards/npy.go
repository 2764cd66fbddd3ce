package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

const npyMagic = "\x93NUMPY"

// maxHeaderBytes is the maximum length of a header: NumPy itself refuses more than 10,000 bytes by
// default.
const maxHeaderBytes = 1 << 20

// maxInRow is the maximum number of elements in a row, and maxItemBytes the maximum size of one, so
// that their product fits in a size.
const (
	maxInRow     = 1 << 40
	maxItemBytes = 1 << 20
)

var (
	npyDescr   = regexp.MustCompile(`^\s*\{.*'descr': *(?:'([^']*)'|(\[.*\]))`)
	npyType    = regexp.MustCompile(`^[<>|=]?([?bBiufcmMSUVO])([0-9]*)(?:\[.*\])?$`)
	npyObject  = regexp.MustCompile(`'[<>|=]?O[0-9]*'`)
	npyFortran = regexp.MustCompile(`'fortran_order': *(True|False)\b`)
	npyShape   = regexp.MustCompile(`'shape': *\(([0-9, ]*)\)`)
)

// An NPYHeader is the header of a .npy file.
type NPYHeader struct {
	Type    string // of an element, as NumPy's descr: <f4; for records it begins with [
	Fortran bool   // column-major order
	Shape   []int64
	Data    int64 // offset of the data, in bytes
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
	descr, fortran, shape := npyDescr.FindStringSubmatch(text), npyFortran.FindStringSubmatch(text),
		npyShape.FindStringSubmatch(text)
	if descr == nil || fortran == nil || shape == nil {
		return NPYHeader{}, errors.New("has a header without type, order or shape")
	}
	h := NPYHeader{Type: descr[1] + descr[2], Fortran: fortran[1] == "True", Data: w.pos}
	h.Shape, err = parseShape(shape[1])
	return h, err
}

// NPY finds the rows of the array in a .npy file of sizeBytes bytes; each row, array[i], is a
// sample.
//
// Errors, whose text follows the file's name: those of ReadNPYHeader; it is longer or shorter than
// its shape says, holds a single number, Python objects, rows without bytes, or is in column-major
// order (fortran_order).
func NPY(in io.ReaderAt, sizeBytes int64) (*Contents, error) {
	header, err := ReadNPYHeader(in, sizeBytes)
	if err != nil {
		return nil, err
	}
	rows, inRow, itemBytes, err := header.rows()
	if err != nil {
		return nil, err
	}
	data := sizeBytes - header.Data
	rowBytes := inRow * itemBytes
	switch {
	case rows == 0 && data == 0:
		return &Contents{}, nil
	case itemBytes == 0 && rows > 0 && data%rows == 0: // records; their size follows from the file's
		rowBytes = data / rows
	case itemBytes == 0 || data/max(rowBytes, 1) != rows || data%max(rowBytes, 1) != 0:
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

// rows returns the number of rows, the number of elements in a row, and the size of an element in
// bytes, 0 for records.
func (h *NPYHeader) rows() (rows, inRow, itemBytes int64, err error) {
	records := strings.HasPrefix(h.Type, "[")
	kind := npyType.FindStringSubmatch(h.Type)
	switch {
	case records && npyObject.MatchString(h.Type) || kind != nil && kind[1] == "O":
		return 0, 0, 0, errors.New("holds Python objects, which have no fixed size")
	case kind == nil && !records:
		return 0, 0, 0, fmt.Errorf("holds elements of type %q, whose size is unknown", h.Type)
	case len(h.Shape) == 0:
		return 0, 0, 0, errors.New("holds one element and no rows")
	case h.Fortran && len(h.Shape) > 1:
		return 0, 0, 0, errors.New("is in column-major order (fortran_order), so its rows cannot be " +
			"read in place")
	}
	inRow = 1
	for _, length := range h.Shape[1:] {
		if length > 0 && inRow > maxInRow/length {
			return 0, 0, 0, fmt.Errorf("has the shape %v, which is too large", h.Shape)
		}
		inRow *= length
	}
	if !records {
		itemBytes, err = itemSize(kind[1], kind[2])
	}
	return h.Shape[0], inRow, itemBytes, err
}

// itemSize returns the bytes of one element; text of n characters (U) has 4 bytes per character.
func itemSize(kind, digits string) (int64, error) {
	size, err := strconv.ParseInt(digits, 10, 32)
	switch {
	case kind == "?" && digits == "":
		return 1, nil
	case err != nil || size == 0 || size > maxItemBytes:
		return 0, fmt.Errorf("holds elements of type %s%s, which have no size", kind, digits)
	case kind == "U":
		return 4 * size, nil
	}
	return size, nil
}

func parseShape(text string) ([]int64, error) {
	var shape []int64
	if text = strings.TrimSuffix(strings.TrimSpace(text), ","); text == "" {
		return nil, nil
	}
	for field := range strings.SplitSeq(text, ",") {
		length, err := strconv.ParseInt(strings.TrimSpace(field), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("has the invalid shape (%s)", text)
		}
		shape = append(shape, length)
	}
	return shape, nil
}
