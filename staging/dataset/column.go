package dataset

import (
	"encoding/binary"
	"io"
	"math"
	"math/bits"
	"unsafe"
)

// A column has a number for each row. While a manifest is built, wide has the numbers; in a sample
// index, cells has them in as few bytes as they need.
type column[T int64 | uint32] struct {
	wide []T // nil in an index

	cells []byte // in an index: number i is base + unit * cell i
	width int    // bytes of a cell: 1, 2, 4 or 8
	base  int64
	unit  uint64
}

// absent reports whether a manifest lacks the column.
func (c *column[T]) absent() bool { return c.wide == nil && c.cells == nil }

func (c *column[T]) len() int {
	if c.cells != nil {
		return len(c.cells) / c.width
	}
	return len(c.wide)
}

// at returns the number of row i.
func (c *column[T]) at(i int) T {
	if c.cells == nil {
		return c.wide[i]
	}
	var cell uint64
	switch c.width {
	case 1:
		cell = uint64(c.cells[i])
	case 2:
		cell = uint64(binary.LittleEndian.Uint16(c.cells[2*i:]))
	case 4:
		cell = uint64(binary.LittleEndian.Uint32(c.cells[4*i:]))
	default:
		cell = binary.LittleEndian.Uint64(c.cells[8*i:])
	}
	return T(uint64(c.base) + c.unit*cell)
}

// columnHead precedes the cells of a column in an index.
type columnHead struct {
	Base    int64
	Unit    uint64
	Width   uint32 // bytes of a cell
	Filling uint32 // padding, 0
}

const columnHeadBytes = 24

// An indexColumn is a column that writeIndex writes.
type indexColumn interface {
	// sizeBytes returns the size of the column in an index, including its head and its padding.
	sizeBytes() uint64
	write(w io.Writer) error
}

// plan returns the head of the column in an index, with cells of as few bytes as possible. Only a
// scaled column has a base other than 0 and a unit other than 1: the smallest number, and the
// greatest common divisor of the differences from it.
func (c *column[T]) plan(scaled bool) columnHead {
	head := columnHead{Unit: 1, Width: 1}
	if c.len() == 0 {
		return head
	}
	if scaled {
		head.Base = math.MaxInt64
		for i := range c.len() {
			head.Base = min(head.Base, int64(c.at(i)))
		}
	}
	most, unit := uint64(0), uint64(0)
	for i := range c.len() {
		beyond := uint64(int64(c.at(i)) - head.Base) // wraps around to the right number
		most = max(most, beyond)
		if scaled && unit != 1 {
			unit = divisor(unit, beyond)
		}
	}
	if scaled {
		head.Unit = max(1, unit)
	}
	for limit := 8; bits.Len64(most/head.Unit) > limit; limit *= 2 {
		head.Width *= 2
	}
	return head
}

// divisor returns the greatest common divisor.
func divisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// A fixed column has cells of the width of T, and no head.
type fixed[T uint64 | uint32 | Format] []T

func (c fixed[T]) sizeBytes() uint64 { return align8(uint64(binary.Size([]T(c)))) }

func (c fixed[T]) write(w io.Writer) error {
	if err := binary.Write(w, binary.LittleEndian, []T(c)); err != nil {
		return err
	}
	_, err := w.Write(make([]byte, c.sizeBytes()-uint64(binary.Size([]T(c)))))
	return err
}

// An encoded column has cells of different widths.
type encoded []byte

func (c encoded) sizeBytes() uint64 { return uint64(len(c)) }

func (c encoded) write(w io.Writer) error {
	_, err := w.Write(c)
	return err
}

func align8(n uint64) uint64 { return (n + 7) &^ 7 }

// narrow pairs a column with its head in an index.
type narrow[T int64 | uint32] struct {
	*column[T]
	head columnHead
}

func plain[T int64 | uint32](c *column[T]) indexColumn { return narrow[T]{c, c.plan(false)} }

func scaled[T int64 | uint32](c *column[T]) indexColumn { return narrow[T]{c, c.plan(true)} }

func (n narrow[T]) sizeBytes() uint64 {
	return columnHeadBytes + align8(uint64(n.len())*uint64(n.head.Width))
}

func (n narrow[T]) write(w io.Writer) error {
	if err := binary.Write(w, binary.LittleEndian, n.head); err != nil {
		return err
	}
	buffer := make([]byte, 0, 64<<10)
	for i := range n.len() {
		cell := uint64(int64(n.at(i))-n.head.Base) / n.head.Unit
		var bytes [8]byte
		binary.LittleEndian.PutUint64(bytes[:], cell)
		buffer = append(buffer, bytes[:n.head.Width]...)
		if len(buffer) > cap(buffer)-8 {
			if _, err := w.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	used := uint64(n.len()) * uint64(n.head.Width)
	_, err := w.Write(append(buffer, make([]byte, align8(used)-used)...))
	return err
}

// read sets the column to the next one, which has n rows.
func (c *column[T]) read(from *indexReader, n uint64) {
	var head columnHead
	_, _ = binary.Decode(from.next(columnHeadBytes), binary.LittleEndian, &head) // the right length
	used := n * uint64(head.Width)
	cells := from.next(align8(used))[:used]
	*c = column[T]{cells: cells, width: int(head.Width), base: head.Base, unit: head.Unit}
}

// readFixed sets *column to the next one, a fixed column of n rows. If the processor is
// little-endian and the cells are aligned, as in a mapped file, *column shares the index's memory.
func readFixed[T uint64 | uint32 | Format](from *indexReader, column *[]T, n uint64) {
	var one T
	used := n * uint64(unsafe.Sizeof(one))
	raw := from.next(align8(used))
	first := unsafe.Pointer(unsafe.SliceData(raw))
	if littleEndian && uintptr(first)%unsafe.Alignof(one) == 0 {
		*column = unsafe.Slice((*T)(first), n)
		return
	}
	*column = make([]T, n)
	_, _ = binary.Decode(raw[:used], binary.LittleEndian, *column) // raw has the right length
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
