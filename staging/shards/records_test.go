package shards

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func writeRecords(records ...string) []byte {
	var out []byte
	for _, record := range records {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(record)))
		out = append(out, head...)
		out = binary.LittleEndian.AppendUint32(out, MaskedCRC(head))
		out = append(out, record...)
		out = binary.LittleEndian.AppendUint32(out, MaskedCRC([]byte(record)))
	}
	return out
}

// TestMaskedCRC compares with known values.
//
// Source: RFC 3720, B.4, for CRC-32C (0x8a9136aa and 0x46dd794e), and TensorFlow's Mask of them.
func TestMaskedCRC(t *testing.T) {
	ascending := make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	mask := func(crc uint32) uint32 { return (crc>>15 | crc<<17) + 0xa282ead8 }
	for _, c := range []struct {
		data []byte
		crc  uint32
	}{{make([]byte, 32), 0x8a9136aa}, {ascending, 0x46dd794e}} {
		if got := MaskedCRC(c.data); got != mask(c.crc) {
			t.Errorf("the checksum of %v is %#x, want %#x", c.data, got, mask(c.crc))
		}
	}
}

func TestTFRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var records []string
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			records = append(records, strings.Repeat("r", rapid.IntRange(0, 20_000).Draw(t, "size")))
		}
		data := writeRecords(records...)
		c, err := parse(TFRecord, data)
		if err != nil || len(c.Samples) != len(records) {
			t.Fatalf("%d records, %v, want %d", len(c.Samples), err, len(records))
		}
		for i, s := range c.Samples {
			if string(data[s.Offset:s.Offset+s.Size]) != records[i] {
				t.Fatalf("record %d is at %+v", i, s)
			}
		}
	})
}

func TestTFRecordErrors(t *testing.T) {
	whole := writeRecords("first", "second")
	const second = 12 + 5 + 4
	for n := 1; n < len(whole); n++ {
		_, err := parse(TFRecord, whole[:n])
		switch {
		case n < second:
			wantError(t, err, "is truncated: record 0 at byte 0")
		case n == second:
			must(t, err)
		default:
			wantError(t, err, "is truncated: record 1 at byte 21")
		}
	}
	for i := range whole {
		damaged := slices.Clone(whole)
		damaged[i] ^= 4
		_, err := parse(TFRecord, damaged)
		if at := i % second; i < second && at < 12 {
			wantError(t, err, "the checksum of the length of record 0 at byte 0 is wrong")
		} else if i >= second && i-second < 12 {
			wantError(t, err, "the checksum of the length of record 1 at byte 21 is wrong")
		} else {
			must(t, err) // data are checked when they are read
		}
	}
}

func FuzzTFRecord(f *testing.F) {
	f.Add(writeRecords("first", "", "third"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parse(TFRecord, data); err == nil {
			checkContents(t, c, int64(len(data)))
		}
	})
}

func writeNPY(header string, dataBytes int) []byte {
	out := []byte("\x93NUMPY\x01\x00")
	out = binary.LittleEndian.AppendUint16(out, uint16(len(header)))
	out = append(out, header...)
	return append(out, bytes.Repeat([]byte{7}, dataBytes)...)
}

func TestNPYErrors(t *testing.T) {
	header := func(descr, order, shape string) string {
		return fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape)
	}
	for _, c := range []struct {
		data []byte
		want string
	}{
		{nil, "is truncated in its header, or is not a .npy file"},
		{[]byte("PK\x03\x04 an archive of arrays"), "is not a file in NumPy's .npy format"},
		{[]byte("\x93NUMPY\x04\x00\x00\x00\x00\x00\x00"), "has version 4"},
		{[]byte("\x93NUMPY\x02\x00\xff\xff\xff\x7f"), "has a header of 2147483647 bytes"},
		{writeNPY("{'descr': '<f4'", 0), "has a header without type, order or shape"},
		{writeNPY(header("'<f4'", "False", "(3, 2)"), 24)[:40], "is truncated in its header"},
		{writeNPY(header("'<f4'", "False", "(3, 2)"), 23), "it has 23 bytes of data, not what 3 rows"},
		{writeNPY(header("'<f4'", "False", "(3, 2)"), 25), "it has 25 bytes"},
		{writeNPY(header("'<f4'", "False", "(3, 2)"), 32), "it has 32 bytes"},
		{writeNPY(header("'<f4'", "False", "(3, 2)"), 0), "it has 0 bytes"},
		{writeNPY(header("'<f4'", "False", "(0,)"), 4), "it has 4 bytes"},
		{writeNPY(header("[('a', '<f4'), ('b', 'u1')]", "False", "(3,)"), 16), "it has 16 bytes"},
		{writeNPY(header("[('a', '<f4'), ('b', 'u1')]", "False", "(3,)"), 12), "it has 12 bytes"},
		{writeNPY(header("[('a', '<f4'), ('b', 'u1')]", "False", "(3,)"), 18), "it has 18 bytes"},
		{writeNPY(header("[('a', '<f4', (4, 2)), ('b', 'u1')]", "False", "(2,)"), 64), "64 bytes"},
		{writeNPY(header("[('a', '<f4', -1)]", "False", "(3,)"), 12), "a field of the shape"},
		{writeNPY(header("[('a',)]", "False", "(3,)"), 12), "whose type is unknown"},
		{writeNPY(header("[('a', [('b', 'O')])]", "False", "(3,)"), 24), "holds Python objects"},
		{writeNPY(header(strings.Repeat("[", 99), "False", "(3,)"), 12), "without type"},
		{writeNPY(header("'|O'", "False", "(3,)"), 24), "holds Python objects"},
		{writeNPY(header("[('a', '<f4'), ('b', '|O')]", "False", "(3,)"), 36), "holds Python objects"},
		{writeNPY(header("'<f4'", "True", "(3, 2)"), 24), "is in column-major order"},
		{writeNPY(header("'<f4'", "False", "()"), 4), "holds one element: it has no rows"},
		{writeNPY(header("'<f4'", "False", "(3, 0)"), 0), "it has 0 bytes of data"},
		{writeNPY(header("'<f4'", "False", "(3, 0)"), 3), "rows without bytes"},
		{writeNPY(header("'<S0'", "False", "(3,)"), 0), "which have no size"},
		{writeNPY(header("'<f4'", "False", "(1, 4294967296, 4294967296)"), 4), "which is too large"},
		{writeNPY(header("'<f4'", "False", "(99999999999999999999, )"), 4), "has a header without"},
	} {
		_, err := parse(NPY, c.data)
		wantError(t, err, c.want)
	}
}

// TestNPYRows has types whose elements have 8 bytes.
func TestNPYRows(t *testing.T) {
	for _, descr := range []string{
		"'<f8'", `"<M8[ns]"`, "u'<U2'", "('<i4', (2,))", "[('O', '<f4'), ('b', '<f4')]",
		"[('a', '<i2', (2, 1)), ('', '|V3'), (('it\\'s', 'b'), '?')]",
		"[('a', [('b', 'u1', 3), ('c', [('d', '<f4')])]), ('e', 'u1')]",
	} {
		for _, shape := range []string{"(3,)", "(3L, 1L)", "( 3 , )"} {
			header := fmt.Sprintf("{u\"shape\": %s, 'descr': %s, 'fortran_order': False}", shape, descr)
			c, err := parse(NPY, writeNPY(header, 24))
			if err != nil {
				t.Errorf("%s: %v", header, err)
			} else if len(c.Samples) != 3 || c.Samples[1] != (Range{c.Samples[0].Offset + 8, 8}) {
				t.Errorf("%s: rows are at %v", header, c.Samples)
			}
		}
	}
}

func FuzzNPY(f *testing.F) {
	f.Add(writeNPY("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n", 24))
	f.Add(writeNPY("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }\n", 12))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parse(NPY, data); err == nil {
			checkContents(t, c, int64(len(data)))
		}
	})
}
