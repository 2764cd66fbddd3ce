package staging

import (
	"encoding/binary"
	"errors"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler"
	"rankpool/staging/shards"
)

// ErrChecksum means that a sample's bytes on storage have another checksum than in the manifest or
// their TFRecord file. It is wrapped in a *SampleError.
var ErrChecksum = errors.New("staging: wrong checksum")

// ChecksumOf returns the value of Manifest.Checksum for a sample with these bytes: their XXH3 hash,
// 64 bits, seed 0.
//
// Source: xxHash, doc/xxhash_spec.md, "XXH3 algorithm overview".
func ChecksumOf(sample []byte) uint64 { return xxh3.Hash(sample) }

// verify returns why the bytes of sample id cannot be right, nil if they agree with everything
// known about them. tail is the checksum after the data of a TFRecord file's record; it is ignored
// for other formats. A wrong checksum is worth one more try: memory or a cable may have been at
// fault.
func (m *Manifest) verify(id scheduler.SampleID, sample []byte, tail *[crcBytes]byte,
	tries int,
) *failure {
	mayPass := tries < 2
	if m.Format(id) == FormatTFRecord && shards.MaskedCRC(sample) != binary.LittleEndian.Uint32(
		tail[:]) {
		return &failure{
			reason: "holds a damaged record: the checksum of its data is wrong",
			err:    ErrChecksum, mayPass: mayPass,
		}
	}
	if want, known := m.Checksum(id); known && ChecksumOf(sample) != want {
		return &failure{
			reason: "has other bytes than the manifest says: their checksum is wrong" + indexAgain,
			err:    ErrChecksum, mayPass: mayPass,
		}
	}
	return nil
}
