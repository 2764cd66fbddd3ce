package dataset

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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

// blockSamples is how many samples are hashed together: few enough that a difference is found by
// listing one block, and enough that the digests of the blocks of 14 M samples take 56 KiB.
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
	id := Identity{
		Digest: digestOf(text, m.BlockDigests()),
		Times:  digestOf(nil, m.blocks(m.appendTimes)),
	}
	if m.checksums != nil && !slices.Contains(m.checksums, 0) { // each sample has one
		id.Contents = digestOf(nil, m.ContentDigests())
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

// BlockDigests returns the digest of each block of samples, in order, from which Identity.Digest is
// computed. Two data sets whose block digests differ have their first difference in the first block
// that differs, or after the last one of the shorter.
func (m *Manifest) BlockDigests() []Digest { return m.blocks(m.appendBlock) }

// ContentDigests returns the digest of each block's checksums, in order, from which
// Identity.Contents is computed.
func (m *Manifest) ContentDigests() []Digest {
	return m.blocks(func(to []byte, first, last int) []byte {
		for i := first; i < last && m.checksums != nil; i++ {
			to = binary.LittleEndian.AppendUint64(to, m.checksums[i])
		}
		return to
	})
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
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(len(blocks), runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			var buffer []byte
			for b := int(next.Add(1)) - 1; b < len(blocks); b = int(next.Add(1)) - 1 {
				buffer = appended(buffer[:0], b*blockSamples, min(m.Len(), (b+1)*blockSamples))
				blocks[b] = xxh3.Hash128(buffer).Bytes()
			}
		})
	}
	group.Wait()
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

// A Listing is the input of FirstDifference: the class names, and the samples of one block.
type Listing struct {
	Classes []string
	First   int // id of the first sample that is listed
	Listed  []Sample
}

// List returns block b of the manifest; a block after the last has no samples.
func (m *Manifest) List(b int) Listing {
	l := Listing{Classes: m.classes, First: b * blockSamples}
	for i := l.First; i < min(m.Len(), l.First+blockSamples); i++ {
		l.Listed = append(l.Listed, m.Sample(draw.SampleID(i)))
	}
	return l
}

// FirstDifference describes the first difference between here and there, the same block of another
// data set; "" if there is none. It ignores modification times. The words follow the name of the
// rank that has there: "lacks a/1.png".
func FirstDifference(here, there Listing) string {
	for i := range max(len(here.Listed), len(there.Listed)) {
		switch {
		case i >= len(there.Listed):
			return "lacks " + here.Listed[i].place()
		case i >= len(here.Listed):
			return "has " + there.Listed[i].place() + " too"
		}
		if what := sampleDifference(here, there, i); what != "" {
			return what
		}
	}
	for i := range max(len(here.Classes), len(there.Classes)) {
		switch {
		case i >= len(there.Classes):
			return "lacks class " + printable(here.Classes[i])
		case i >= len(here.Classes):
			return "has class " + printable(there.Classes[i]) + " too"
		case here.Classes[i] != there.Classes[i]:
			return fmt.Sprintf("has %s for class %s", printable(there.Classes[i]),
				printable(here.Classes[i]))
		}
	}
	return ""
}

// sampleDifference compares the samples at index i.
func sampleDifference(here, there Listing, i int) string {
	a, b := here.Listed[i], there.Listed[i]
	switch order := comparePaths(a, b); {
	case order < 0 && !there.has(a):
		return "lacks " + a.place()
	case order > 0 && !here.has(b):
		return "has " + b.place() + " too"
	case order != 0:
		return fmt.Sprintf("has %s as sample %d, which should be %s", b.place(), here.First+i, a.place())
	case a.Size != b.Size:
		return fmt.Sprintf("has %s with %d bytes, which should be %d", b.place(), b.Size, a.Size)
	case a.Label != b.Label:
		return fmt.Sprintf("has %s with label %d, which should be %d", b.place(), b.Label, a.Label)
	case !slices.Equal(a.Members, b.Members):
		return fmt.Sprintf("has %s with other members", b.place())
	case a.Checksum != b.Checksum && a.Checksum != 0 && b.Checksum != 0:
		return fmt.Sprintf("has %s with checksum %016x, which should be %016x", b.place(), b.Checksum,
			a.Checksum)
	}
	return ""
}

// comparePaths orders samples as a scan does.
func comparePaths(a, b Sample) int {
	dirA, nameA := path.Split(a.Path)
	dirB, nameB := path.Split(b.Path)
	return cmp.Or(CompareFolders(strings.TrimSuffix(dirA, "/"), strings.TrimSuffix(dirB, "/")),
		CompareNames(nameA, nameB), cmp.Compare(a.Offset, b.Offset))
}

// has reports whether the block has a sample at the path and offset of s.
func (l *Listing) has(s Sample) bool {
	return slices.ContainsFunc(l.Listed, func(t Sample) bool {
		return t.Path == s.Path && t.Offset == s.Offset
	})
}

// place names the sample.
func (s Sample) place() string {
	if s.Offset == 0 {
		return printable(s.Path)
	}
	return fmt.Sprintf("%s from byte %d on", printable(s.Path), s.Offset)
}

// FirstBlock returns the first block in which two data sets differ, by their BlockDigests; the last
// one if none does.
func FirstBlock(here, there []Digest) int {
	n := min(len(here), len(there))
	for b := range n {
		if here[b] != there[b] {
			return b
		}
	}
	if len(here) == len(there) {
		return max(0, n-1)
	}
	return n
}
