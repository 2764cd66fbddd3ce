package npy

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// A kind is a type of numbers. One of float and integer is set.
type kind struct {
	descr, name string
	bytes       int
	float       func([]byte) float64
	integer     func([]byte) int64
}

var kinds = []kind{
	{descr: "<f2", name: "float16", bytes: 2, float: func(b []byte) float64 {
		return half(binary.LittleEndian.Uint16(b))
	}},
	{descr: "<f4", name: "float32", bytes: 4, float: func(b []byte) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}},
	{descr: "<f8", name: "float64", bytes: 8, float: func(b []byte) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}},
	{descr: "|u1", name: "uint8", bytes: 1, integer: func(b []byte) int64 { return int64(b[0]) }},
	{descr: "<i4", name: "int32", bytes: 4, integer: func(b []byte) int64 {
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}},
	{descr: "<i8", name: "int64", bytes: 8, integer: func(b []byte) int64 {
		return int64(binary.LittleEndian.Uint64(b))
	}},
}

// known names the types.
func known() string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return strings.Join(names, ", ")
}

// half converts an IEEE 754 binary16 number exactly.
func half(bits uint16) float64 {
	sign, exponent, fraction := bits>>15, int(bits>>10&0x1f), float64(bits&0x3ff)
	value := math.Ldexp(fraction+0x400, exponent-25)
	switch {
	case exponent == 0:
		value = math.Ldexp(fraction, -24)
	case exponent == 0x1f && fraction == 0:
		value = math.Inf(1)
	case exponent == 0x1f:
		return math.NaN()
	}
	if sign == 1 {
		return -value
	}
	return value
}

// Float32s returns the numbers in the file's order; float64 is rounded. The slice is the caller's.
// It returns an error if the type is an integer type.
func (a *Array) Float32s() ([]float32, error) {
	if a.kind.float == nil {
		return nil, fmt.Errorf("npy: %s are not floating-point numbers", a.Type)
	}
	numbers := make([]float32, len(a.data)/a.kind.bytes)
	for i := range numbers {
		numbers[i] = float32(a.kind.float(a.data[i*a.kind.bytes:]))
	}
	return numbers, nil
}

// Int64s returns the numbers in the file's order. The slice is the caller's. It returns an error if
// the type is a floating-point type.
func (a *Array) Int64s() ([]int64, error) {
	if a.kind.integer == nil {
		return nil, fmt.Errorf("npy: %s are not integers", a.Type)
	}
	numbers := make([]int64, len(a.data)/a.kind.bytes)
	for i := range numbers {
		numbers[i] = a.kind.integer(a.data[i*a.kind.bytes:])
	}
	return numbers, nil
}
