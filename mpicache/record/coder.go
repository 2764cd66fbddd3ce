package record

import (
	"encoding/binary"
	"errors"
	"math"
)

// coder writes values to the end of b, or reads them from its beginning: one function a type says its layout for both ways.
// After an error it reads zeros.
type coder struct {
	b       []byte
	reading bool
	err     error
}

var errShort = errors.New("a value is cut off or has no meaning")

func (c *coder) fail() {
	c.err = errShort
	c.b = nil
}

type integer interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// num is a whole number as a varint.
func num[T integer](c *coder, v *T) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	n, size := binary.Varint(c.b)
	*v = T(n)
	if size <= 0 || int64(*v) != n {
		c.fail()
		*v = 0
		return
	}
	c.b = c.b[size:]
}

// count is the length of a list of which every element takes at least size bytes.
func (c *coder) count(n, size int) int {
	num(c, &n)
	if c.reading && (n < 0 || n > len(c.b)/size) {
		c.fail()
		return 0
	}
	return n
}

// list is a list of whole numbers. An empty one is read as nil.
func list[T integer](c *coder, v *[]T) {
	n := c.count(len(*v), 1)
	if c.reading {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		num(c, &(*v)[i])
	}
}

// fixed are size bytes.
func (c *coder) fixed(size int) []byte {
	if !c.reading {
		n := len(c.b)
		c.b = append(c.b, make([]byte, size)...)
		return c.b[n:]
	}
	if len(c.b) < size {
		c.fail()
		return make([]byte, size)
	}
	v := c.b[:size]
	c.b = c.b[size:]
	return v
}

func (c *coder) u64(v *uint64) {
	b := c.fixed(8)
	if c.reading {
		*v = binary.LittleEndian.Uint64(b)
		return
	}
	binary.LittleEndian.PutUint64(b, *v)
}

func (c *coder) f64(v *float64) {
	bits := math.Float64bits(*v)
	c.u64(&bits)
	*v = math.Float64frombits(bits)
}

func (c *coder) f32(v *float32) {
	b := c.fixed(4)
	if c.reading {
		*v = math.Float32frombits(binary.LittleEndian.Uint32(b))
		return
	}
	binary.LittleEndian.PutUint32(b, math.Float32bits(*v))
}

func (c *coder) f32s(v *[]float32) {
	n := c.count(len(*v), 4)
	if c.reading {
		*v = make([]float32, n)
	}
	for i := range *v {
		c.f32(&(*v)[i])
	}
}

func (c *coder) flag(v *bool) {
	n := byte(0)
	if *v {
		n = 1
	}
	num(c, &n)
	*v = n == 1
}

func (c *coder) text(v *string) {
	n := c.count(len(*v), 1)
	if !c.reading {
		c.b = append(c.b, *v...)
		return
	}
	*v = string(c.fixed(n))
}

// problem is an error of which the text counts; "" is none.
func (c *coder) problem(v *error) {
	text := ""
	if *v != nil {
		text = (*v).Error()
	}
	some := *v != nil
	c.flag(&some)
	if some {
		c.text(&text)
	}
	if c.reading && some {
		*v = errors.New(text)
	}
}
