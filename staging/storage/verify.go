package storage

import (
	"encoding/binary"
	"errors"

	"rankpool/scheduler"
	"rankpool/staging/dataset"
	"rankpool/staging/shards"
)

// ErrChecksum means that a sample's bytes on storage have another checksum than in the manifest or
// their TFRecord file. It is wrapped in a *SampleError.
var ErrChecksum = errors.New("staging: wrong checksum")

// verify returns why the bytes of sample id cannot be right, nil if they agree with everything
// known about them. tail is the checksum after the data of a TFRecord file's record; it is ignored
// for other formats. A wrong checksum is worth one more try: memory or a cable may have been at
// fault.
func verify(m *dataset.Manifest, id scheduler.SampleID, sample []byte,
	tail *[dataset.RecordCRCBytes]byte, tries int,
) *Failure {
	mayPass := tries < 2
	if m.Format(id) == dataset.FormatTFRecord &&
		shards.MaskedCRC(sample) != binary.LittleEndian.Uint32(tail[:]) {
		return &Failure{
			Reason: "holds a damaged record: the checksum of its data is wrong",
			Err:    ErrChecksum, MayPass: mayPass,
		}
	}
	if want, known := m.Checksum(id); known && dataset.ChecksumOf(sample) != want {
		return &Failure{
			Reason: "has other bytes than the manifest says: their checksum is wrong" + IndexAgain,
			Err:    ErrChecksum, MayPass: mayPass,
		}
	}
	return nil
}
