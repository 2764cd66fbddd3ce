package staging

import (
	"encoding/binary"
	"errors"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler"
	"rankpool/staging/shards"
)

// ErrChecksum is, wrapped in a *SampleError, that a sample's bytes on storage have another checksum
// than the manifest or their TFRecord file says.
var ErrChecksum = errors.New("staging: wrong checksum")

// ChecksumOf returns the checksum that Manifest.Checksum has of a sample with these bytes: their
// XXH3 hash, 64 bits, seed 0.
//
// Source: xxHash, doc/xxhash_spec.md, "XXH3 algorithm overview".
func ChecksumOf(sample []byte) uint64 { return xxh3.Hash(sample) }

// verify returns why the bytes of sample id cannot be right, nil when they agree with all that is
// known of them. tail is the checksum behind the data of a TFRecord file's record, and not looked
// at for other formats. A wrong checksum is worth one other try: memory or a cable may have been at
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
