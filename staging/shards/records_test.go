package shards

import (
	"encoding/binary"
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
