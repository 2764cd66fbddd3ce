package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A record of a TFRecord file: the length of its data (u64), the checksum of the length (u32), the
// data, and the checksum of the data (u32), all little-endian.
//
// Source: TensorFlow, core/lib/io/record_writer.h.
const (
	recordHeadBytes = 12
	// RecordTailBytes is the size of the checksum after a record's data.
	RecordTailBytes = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MaskedCRC returns the checksum of p in TFRecord files: CRC-32C, rotated right by 15 bits, plus a
// constant.
//
// Source: TensorFlow, core/lib/hash/crc32c.h, Mask.
func MaskedCRC(p []byte) uint32 {
	crc := crc32.Checksum(p, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// IsTFRecord reports whether a file of sizeBytes bytes begins as a TFRecord file does: with the
// length of a record, and its checksum.
func IsTFRecord(in io.ReaderAt, sizeBytes int64) bool {
	var head [recordHeadBytes]byte
	err := newWindow(in, sizeBytes).readAt(head[:], 0)
	return err == nil && MaskedCRC(head[:8]) == binary.LittleEndian.Uint32(head[8:])
}

// TFRecord finds the records of a TFRecord file of sizeBytes bytes, each a sample, and verifies the
// checksums of their lengths, not of their data.
//
// Errors, whose text follows the file's name: it is truncated, or a length's checksum is wrong.
func TFRecord(in io.ReaderAt, sizeBytes int64) (*Contents, error) {
	w := newWindow(in, sizeBytes)
	c := &Contents{}
	var head [recordHeadBytes]byte
	for at := int64(0); at < sizeBytes; {
		what := fmt.Sprintf("record %d", len(c.Samples))
		if err := w.readAt(head[:], at); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, truncated(what, at, at+recordHeadBytes, sizeBytes)
			}
			return nil, err
		}
		if MaskedCRC(head[:8]) != binary.LittleEndian.Uint32(head[8:]) {
			return nil, fmt.Errorf("is damaged, compressed, or not a TFRecord file: the checksum of the "+
				"length of %s at byte %d is wrong",
				what, at)
		}
		size := binary.LittleEndian.Uint64(head[:8])
		data := at + recordHeadBytes
		if room := sizeBytes - data - RecordTailBytes; room < 0 || size > uint64(room) {
			return nil, fmt.Errorf("is truncated: %s at byte %d has %d bytes of data, the file has %d bytes",
				what, at, size, sizeBytes)
		}
		c.Samples = append(c.Samples, Range{data, int64(size)})
		at = data + int64(size) + RecordTailBytes
	}
	return c, nil
}
