// Package fields reads the fields of a message: little-endian numbers, and lists of them.
package fields

import (
	"encoding/binary"
	"math"
	"slices"
)

// A Reader reads one field after the other. If one is missing, it and all that follow read as zero.
type Reader struct {
	Rest  []byte // what has not been read
	Short bool   // a field was missing
}

// Bytes returns the next n bytes; if they are missing, at most 8 zeros.
func (r *Reader) Bytes(n int) []byte {
	if r.Short || n < 0 || n > len(r.Rest) {
		r.Short = true
		return make([]byte, max(0, min(n, 8)))
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// U16 returns the next number of two bytes.
func (r *Reader) U16() uint16 { return binary.LittleEndian.Uint16(r.Bytes(2)) }

// U32 returns the next number of four bytes.
func (r *Reader) U32() uint32 { return binary.LittleEndian.Uint32(r.Bytes(4)) }

// U64 returns the next number of eight bytes.
func (r *Reader) U64() uint64 { return binary.LittleEndian.Uint64(r.Bytes(8)) }

// List returns the bytes of n numbers of four bytes, or nil if there are fewer.
func (r *Reader) List(n uint32) []byte {
	if uint64(n)*4 > uint64(len(r.Rest)) {
		r.Short = true
		return nil
	}
	return r.Bytes(int(n) * 4)
}

// U32s appends the next n numbers to dst.
func U32s[T ~uint32](r *Reader, dst []T, n uint32) []T {
	b := r.List(n)
	dst = slices.Grow(dst, len(b)/4)
	for ; len(b) >= 4; b = b[4:] {
		dst = append(dst, T(binary.LittleEndian.Uint32(b)))
	}
	return dst
}

// F32s returns the next n numbers.
func (r *Reader) F32s(n uint32) []float32 {
	b := r.List(n)
	dst := make([]float32, 0, len(b)/4)
	for ; len(b) >= 4; b = b[4:] {
		dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return dst
}

// Whole reports whether all fields were there, and no bytes are left.
func (r *Reader) Whole() bool { return !r.Short && len(r.Rest) == 0 }
