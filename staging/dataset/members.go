package dataset

import (
	"iter"
	"path"
	"slices"
	"strings"

	"rankpool/scheduler/draw"
	"rankpool/staging/shards"
)

// A Member is one file of a sample. The bytes of a sample are those of its members, one after the
// other.
type Member struct {
	Kind   string // its extension in lower case, without the leading dot: "jpg", "seg.png", "cls"
	Offset int64  // where in the sample's file it starts, in bytes
	Size   int64  // in bytes
}

// A memberTable holds the members of all samples of a manifest, in columns; if there are none, all
// columns are nil.
//
// Sample i has the members ends[i-1] to ends[i]; it has none in the table if it is one range of
// bytes.
type memberTable struct {
	kinds   []string      // the extensions that occur
	ends    []uint32      // per sample
	offsets column[int64] // per member, like all that follow
	sizes   column[int64]
	kind    column[uint32] // indexes into kinds
}

// Members returns the members of sample id in the order of its bytes; the caller owns the slice. A
// sample that is a whole file has one, named by the file's extension; a record of a TFRecord file
// has one, "tfrecord".
func (m *Manifest) Members(id draw.SampleID) []Member {
	if found := m.members.of(id); found != nil {
		return found
	}
	return []Member{{m.kindAlone(id), m.Offset(id), m.Size(id)}}
}

// of returns the members of sample id; nil if it has none in the table.
func (t *memberTable) of(id draw.SampleID) (found []Member) {
	first, last := t.span(id)
	found = slices.Grow(found, int(last-first))
	for i := int(first); i < int(last); i++ {
		found = append(found, Member{t.kinds[t.kind.at(i)], t.offsets.at(i), t.sizes.at(i)})
	}
	return found
}

// Ranges yields the ranges of the file that make up sample id, as offset and size in bytes, in the
// order of the sample's bytes.
func (m *Manifest) Ranges(id draw.SampleID) iter.Seq2[int64, int64] {
	return func(yield func(offset, sizeBytes int64) bool) {
		first, last := m.members.span(id)
		if first == last {
			yield(m.Offset(id), m.Size(id))
			return
		}
		for i := first; i < last; i++ {
			if !yield(m.members.offsets.at(int(i)), m.members.sizes.at(int(i))) {
				return
			}
		}
	}
}

// HasMembers reports whether any sample has more than one member.
func (m *Manifest) HasMembers() bool {
	first := uint32(0)
	for _, end := range m.members.ends {
		if end-first > 1 {
			return true
		}
		first = end
	}
	return false
}

// kindAlone returns the kind of the only member of a sample that has no members in the table.
func (m *Manifest) kindAlone(id draw.SampleID) string {
	if format := m.Format(id); format == FormatTFRecord {
		return format.String()
	}
	return shards.LowerASCII(strings.TrimPrefix(path.Ext(string(m.name(id))), "."))
}

// span returns the range of the members of sample id; an empty one if it has none in the table.
func (t *memberTable) span(id draw.SampleID) (first, last uint32) {
	if t.ends == nil {
		return 0, 0
	}
	if id > 0 {
		first = t.ends[id-1]
	}
	return first, t.ends[id]
}
