package dataset

import (
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler/draw"
)

// An Identity identifies a data set: two with the same identity give a training the same samples
// under the same ids.
type Identity struct {
	// Digest covers the class names and each sample's path below the root, place in its file, size,
	// label and members, in the order of ids. A data set that was copied, staged or indexed again has
	// the same digest, whatever its root, its modification times and the kind of its manifest.
	Digest Digest
	// Contents covers all checksums; zero unless each sample has one.
	Contents Digest
	// Times covers the modification times: two indexes with the same times are of the same files,
	// unchanged in between.
	Times Digest
}

// A Digest is an XXH3 hash of 128 bits. It protects against mistakes, not against attacks.
type Digest [16]byte

// String returns the digest in hexadecimal, "" for none.
func (d Digest) String() string {
	if d == (Digest{}) {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// Differs reports whether two identities are of different data sets. It ignores modification times,
// and contents unless both are known.
func (id Identity) Differs(other Identity) bool {
	none := Digest{}
	return id.Digest != other.Digest || id.Contents != other.Contents && id.Contents != none &&
		other.Contents != none
}

// blockSamples is how many samples are hashed together.
const blockSamples = 4096

// Identity returns the data set's identity. It takes some 50 ms per million samples on one core.
func (m *Manifest) Identity() Identity {
	if m.known != nil {
		return *m.known
	}
	text := appendText(nil, "rankpool data set 1")
	text = binary.LittleEndian.AppendUint64(text, uint64(m.Len()))
	text = binary.LittleEndian.AppendUint64(text, uint64(len(m.classes)))
	for _, class := range m.classes {
		text = appendText(text, class)
	}
	if m.pieces != nil {
		text = append(text, m.pieces.identity()...)
	}
	id := Identity{
		Digest: digestOf(text, m.blocks(m.appendBlock)),
		Times:  digestOf(nil, m.blocks(m.appendTimes)),
	}
	if m.checksums != nil && !slices.Contains(m.checksums, 0) { // each sample has one
		id.Contents = digestOf(nil, m.blocks(m.appendChecksums))
	}
	return id
}

// digestOf returns the digest of a text and of digests.
func digestOf(text []byte, blocks []Digest) Digest {
	for _, block := range blocks {
		text = append(text, block[:]...)
	}
	return xxh3.Hash128(text).Bytes()
}

func (m *Manifest) appendChecksums(to []byte, first, last int) []byte {
	for _, sum := range m.checksums[first:last] {
		to = binary.LittleEndian.AppendUint64(to, sum)
	}
	return to
}

func (m *Manifest) appendTimes(to []byte, first, last int) []byte {
	for i := first; i < last; i++ {
		to = binary.LittleEndian.AppendUint64(to, uint64(m.modTimes.at(i)))
	}
	return to
}

// blocks returns a digest per block, of what appended appends for the block's samples, which start
// at first and end before last.
func (m *Manifest) blocks(appended func(to []byte, first, last int) []byte) []Digest {
	blocks := make([]Digest, (m.Len()+blockSamples-1)/blockSamples)
	var buffer []byte
	for b := range blocks {
		buffer = appended(buffer[:0], b*blockSamples, min(m.Len(), (b+1)*blockSamples))
		blocks[b] = xxh3.Hash128(buffer).Bytes()
	}
	return blocks
}

// appendBlock appends the samples. A sample in the same folder as the preceding one has a mark
// instead of the folder.
func (m *Manifest) appendBlock(to []byte, first, last int) []byte {
	var before string
	for i := first; i < last; i++ {
		id := draw.SampleID(i)
		if in := m.folders[m.inFolder.at(i)].Path; i == first || in != before {
			before = in
			to = appendText(append(to, 1), in)
		} else {
			to = append(to, 0)
		}
		name := m.name(id)
		to = append(binary.LittleEndian.AppendUint32(to, uint32(len(name))), name...)
		to = binary.LittleEndian.AppendUint64(to, uint64(m.sizes.at(i)))
		to = binary.LittleEndian.AppendUint64(to, uint64(m.Offset(id)))
		to = binary.LittleEndian.AppendUint32(to, m.labels.at(i))
		member, end := m.members.span(id)
		to = binary.LittleEndian.AppendUint32(to, end-member)
		for j := member; j < end; j++ {
			to = appendText(to, m.members.kinds[m.members.kind.at(int(j))])
			to = binary.LittleEndian.AppendUint64(to, uint64(m.members.offsets.at(int(j))))
			to = binary.LittleEndian.AppendUint64(to, uint64(m.members.sizes.at(int(j))))
		}
	}
	return to
}
