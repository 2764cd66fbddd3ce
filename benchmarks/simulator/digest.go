package simulator

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"

	"rankpool/scheduler/draw"
)

// idsDigest is the digest of a stream of global batches by their ids; nil: not requested.
type idsDigest struct {
	sum   hash.Hash
	ids   []draw.SampleID
	bytes []byte
}

func newIDsDigest(wanted bool) *idsDigest {
	if !wanted {
		return nil
	}
	return &idsDigest{sum: sha256.New()}
}

// add adds the ids that a global batch was served, in any order.
func (d *idsDigest) add(ids []draw.SampleID) {
	if d == nil {
		return
	}
	d.ids, d.bytes = append(d.ids[:0], ids...), d.bytes[:0]
	slices.Sort(d.ids)
	for _, id := range d.ids {
		d.bytes = binary.LittleEndian.AppendUint64(d.bytes, uint64(id))
	}
	_, _ = d.sum.Write(d.bytes) // a hash never fails
}

// hex returns the digest of all that was added, "" if none was requested.
func (d *idsDigest) hex() string {
	if d == nil {
		return ""
	}
	return hex.EncodeToString(d.sum.Sum(nil))
}
