package dataset

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"rankpool/scheduler/draw"
)

// A Sample is one sample of a manifest.
type Sample struct {
	Path     string // of its file, relative to the root
	Format   Format
	Offset   int64    // in the file, in bytes
	Size     int64    // in bytes; with members, the sum of their sizes
	Label    int      // in [0, number of classes)
	ModTime  int64    // of the file, in nanoseconds since 1970
	Checksum uint64   // 0: unknown
	Members  []Member // none: the sample is one range of bytes
}

// Sample returns all that the manifest says of sample id; the caller owns Members.
func (m *Manifest) Sample(id draw.SampleID) Sample {
	sum, _ := m.Checksum(id)
	return Sample{
		Path: m.RelPath(id), Format: m.Format(id), Offset: m.Offset(id), Size: m.Size(id),
		Label: m.Label(id), ModTime: m.ModTime(id), Checksum: sum, Members: m.members.of(id),
	}
}

// A Builder builds a manifest: NewBuilder, Add in the order of the samples, Manifest.
type Builder struct {
	m     *Manifest
	rows  map[string]uint32   // of the folder table, by path
	kinds map[string]uint32   // indexes into the kinds of members
	most  int                 // the largest label
	names map[fileName]uint32 // of pieces: the numbers of names
}

// NewBuilder returns a Builder of a manifest of some n samples below root, an absolute path.
func NewBuilder(root string, n int) *Builder {
	m := &Manifest{root: root}
	m.sizes.wide = make([]int64, 0, n)
	m.modTimes.wide = make([]int64, 0, n)
	m.labels.wide = make([]uint32, 0, n)
	m.inFolder.wide = make([]uint32, 0, n)
	m.nameEnds = make([]uint32, 0, n)
	return &Builder{m: m, rows: map[string]uint32{}, kinds: map[string]uint32{}, most: -1}
}

// LeavesOut records that a folder has entries that are no samples, and belong to none.
func (b *Builder) LeavesOut() { b.m.leavesOut = true }

// OtherKinds records that class folders have other files, none with the extension of a sample or an
// image.
func (b *Builder) OtherKinds() { b.m.otherKinds = true }

// Pieces records that what is added are the pieces of these samples, which may change until
// Manifest is called.
func (b *Builder) Pieces(p *Pieces) { b.m.pieces, b.names = p, map[fileName]uint32{} }

// AddFolder appends a folder to the folder table. Add appends the folders of samples that are not
// there, without a time.
func (b *Builder) AddFolder(in Folder) error {
	if err := CheckFolder(in.Path); err != nil {
		return err
	}
	b.rows[in.Path] = uint32(len(b.m.folders))
	b.m.folders = append(b.m.folders, in)
	return nil
}

// Add appends a sample; its Members may be reused afterwards.
//
// Errors: too many samples, and an invalid one: a path that leads out of the root, a negative
// label, size or offset, members that do not add up.
func (b *Builder) Add(s Sample) error {
	m, i := b.m, b.m.Len()
	dir, name := path.Split(s.Path)
	if err := checkSample(s, name); err != nil {
		return err
	}
	if i == math.MaxUint32 || len(m.names)+len(name) > math.MaxUint32 {
		return fmt.Errorf("there are too many samples: at most %d, with %[1]d bytes of file names, "+
			"are possible", uint32(math.MaxUint32))
	}
	row, err := b.row(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return err
	}
	b.most = max(b.most, s.Label)
	m.sizes.wide = append(m.sizes.wide, s.Size)
	m.modTimes.wide = append(m.modTimes.wide, s.ModTime)
	m.labels.wide = append(m.labels.wide, uint32(s.Label))
	m.inFolder.wide = append(m.inFolder.wide, row)
	b.addName(name, row)
	// the columns below begin with the first sample that needs them
	room := cap(m.sizes.wide)
	if s.Format != FormatFile && m.offsets.absent() {
		m.offsets.wide, m.formats = make([]int64, i, room), make([]Format, i, room)
	}
	if !m.offsets.absent() {
		m.offsets.wide, m.formats = append(m.offsets.wide, s.Offset), append(m.formats, s.Format)
	}
	if s.Checksum != 0 && m.checksums == nil {
		m.checksums = make([]uint64, i, room)
	}
	if m.checksums != nil {
		m.checksums = append(m.checksums, s.Checksum)
	}
	if len(s.Members) > 0 && m.members.ends == nil {
		m.members.ends = make([]uint32, i, room)
	}
	if m.members.ends != nil {
		b.addMembers(s.Members)
	}
	return nil
}

// addName appends the name of the last sample, in a row of the folder table. The pieces of a file
// share theirs.
func (b *Builder) addName(name string, row uint32) {
	m := b.m
	if m.pieces != nil {
		number, known := b.names[fileName{row, name}]
		if !known {
			number = uint32(len(m.nameEnds))
			b.names[fileName{row, name}] = number
		}
		m.named.wide = append(m.named.wide, number)
		if known {
			return
		}
	}
	m.names = append(m.names, name...)
	m.nameEnds = append(m.nameEnds, uint32(len(m.names)))
}

// checkSample returns an error unless a sample in a file of this name is possible.
func checkSample(s Sample, name string) error {
	switch {
	case s.Format >= formats:
		return fmt.Errorf("unknown format %d", s.Format)
	case s.Label < 0 || s.Label > math.MaxInt32:
		return fmt.Errorf("it cannot have the label %d", s.Label)
	case s.Size < 0 || s.Offset < 0 || s.Offset > math.MaxInt64-RecordCRCBytes-s.Size ||
		s.Format == FormatFile && s.Offset > 0:
		return fmt.Errorf("it cannot have %d bytes at offset %d", s.Size, s.Offset)
	}
	sum := int64(0)
	for _, member := range s.Members {
		if member.Size < 0 || member.Offset < 0 || member.Size > math.MaxInt64-sum ||
			member.Offset > math.MaxInt64-RecordCRCBytes-member.Size {
			return errors.New("it has an impossible member")
		}
		sum += member.Size
	}
	if len(s.Members) > 0 && sum != s.Size {
		return fmt.Errorf("it has %d bytes, but its members have %d", s.Size, sum)
	}
	return CheckName([]byte(name))
}

// row returns the row of a folder, which it appends to the table if it is new.
func (b *Builder) row(dir string) (uint32, error) {
	if n := b.m.inFolder.len(); n > 0 { // neighbours mostly share their folder
		if row := b.m.inFolder.at(n - 1); b.m.folders[row].Path == dir {
			return row, nil
		}
	}
	if row, known := b.rows[dir]; known {
		return row, nil
	}
	err := b.AddFolder(Folder{Path: dir})
	return b.rows[dir], err
}

// fileName names a file by the row of its folder.
type fileName struct {
	row  uint32
	name string
}

// addMembers appends the members of the last sample.
func (b *Builder) addMembers(members []Member) {
	t := &b.m.members
	for _, member := range members {
		kind, known := b.kinds[member.Kind]
		if !known {
			kind = uint32(len(t.kinds))
			b.kinds[member.Kind], t.kinds = kind, append(t.kinds, member.Kind)
		}
		t.kind.wide = append(t.kind.wide, kind)
		t.offsets.wide = append(t.offsets.wide, member.Offset)
		t.sizes.wide = append(t.sizes.wide, member.Size)
	}
	t.ends = append(t.ends, uint32(t.kind.len()))
}

// Manifest returns the manifest, whose classes are named by label. The Builder must not be used
// afterwards.
//
// Errors: no samples, a root that is not absolute, a label without class, windows of pieces that do
// not exist.
func (b *Builder) Manifest(classes []string) (*Manifest, error) {
	switch {
	case b.m.Len() == 0:
		return nil, errors.New("holds no sample")
	case b.most >= len(classes):
		return nil, fmt.Errorf("label %d is not one of the %d classes", b.most, len(classes))
	}
	if p := b.m.pieces; p != nil {
		if err := p.check(b.m.Len()); err != nil {
			return nil, err
		}
	}
	b.m.classes = classes
	return b.m, checkRoot(b.m.root)
}
