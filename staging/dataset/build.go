package dataset

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"rankpool/scheduler/draw"
	"rankpool/staging/shards"
)

// A Builder builds a manifest in the order of its samples: NewBuilder, then for each folder
// AddFolder and its files, then Manifest.
type Builder struct{ m *Manifest }

// NewBuilder returns a Builder of a manifest of samples below root, an absolute path. nameBytes is
// the sum of the lengths of the samples' file names; a shard's name counts once per sample.
//
// Errors: too many samples, or names that take too many bytes.
func NewBuilder(root string, samples, nameBytes int64) (*Builder, error) {
	if err := checkLimits(samples, nameBytes); err != nil {
		return nil, err
	}
	m := &Manifest{root: root}
	m.reserve(int(samples), int(nameBytes))
	return &Builder{m}, nil
}

// AddFolder appends a folder; the files that follow are in it.
func (b *Builder) AddFolder(in Folder) { b.m.folders = append(b.m.folders, in) }

// LeavesOut records that a folder has entries that are no samples, and belong to none.
func (b *Builder) LeavesOut() { b.m.leavesOut = true }

// OtherKinds records that class folders have other files, of which none has the extension of a
// sample, or of an image.
func (b *Builder) OtherKinds() { b.m.otherKinds = true }

// AddFile appends a whole file in the last folder.
func (b *Builder) AddFile(name string, label uint32, sizeBytes, modTime int64) {
	b.m.add(b.row(), name, label, sizeBytes, modTime)
}

// row returns the row of the last folder.
func (b *Builder) row() uint32 { return uint32(len(b.m.folders) - 1) }

// AddShard appends the samples of a shard in the last folder. Their label is label, unless the
// shard has labels.
func (b *Builder) AddShard(name string, label uint32, modTime int64, format Format,
	c *shards.Contents,
) {
	b.m.addShard(b.row(), name, label, modTime, format, c)
}

// Manifest returns the manifest, whose classes are named by label. The Builder must not be used
// afterwards.
func (b *Builder) Manifest(classes []string) *Manifest {
	b.m.classes, b.m.members.numbers = classes, nil
	return b.m
}

// addShard appends the samples of a shard in folder row in; label is theirs unless the shard has
// labels.
func (m *Manifest) addShard(in uint32, name string, label uint32, modTime int64, format Format,
	c *shards.Contents,
) {
	m.addFormats()
	if c.Ends != nil && m.members.ends == nil {
		m.members.ends = make([]uint32, m.Len(), cap(m.sizes.wide))
	}
	kinds := make([]uint32, len(c.Kinds))
	for i, kind := range c.Kinds {
		kinds[i] = m.members.kindNumber(kind)
	}
	first := uint32(0)
	for i, place := range c.Samples {
		if c.Labels != nil {
			label = c.Labels[i]
		}
		m.add(in, name, label, place.Size, modTime)
		m.offsets.wide[m.Len()-1], m.formats[m.Len()-1] = place.Offset, format
		if c.Ends == nil {
			continue
		}
		for _, member := range c.Members[first:c.Ends[i]] {
			m.members.add(kinds[member.Kind], member.Offset, member.Size)
		}
		m.members.ends[m.Len()-1] = uint32(m.members.kind.len())
		first = c.Ends[i]
	}
}

// A Sample is one sample of a manifest, as Build reads it and a Listing has it.
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

// Build returns the manifest of n samples below root, an absolute path; it calls next(i) for i from
// 0 to n-1 for sample i, whose Members may be reused by the next call. It needs as much memory as a
// scan's manifest.
//
// Errors: no samples or too many, a root that is not absolute, and an invalid sample: a path that
// leads out of the root, a label without class, a negative size or offset, members that do not add
// up.
func Build(root string, classes []string, n int, next func(i int) Sample) (*Manifest, error) {
	m := &Manifest{root: root, classes: classes}
	err := checkRoot(root)
	switch {
	case n == 0:
		err = errors.New("it holds no sample")
	case err == nil:
		err = checkLimits(int64(n), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("staging: a manifest of %s: %w", root, err)
	}
	m.reserve(n, 0)
	rows := map[string]uint32{} // of the folder table
	for i := range n {
		if err := m.addSample(next(i), rows); err != nil {
			return nil, fmt.Errorf("staging: a manifest of %s: sample %d: %w", root, i, err)
		}
	}
	m.members.numbers = nil
	return m, nil
}

// addSample appends a sample, and its folder to the table and to rows if it is new.
func (m *Manifest) addSample(s Sample, rows map[string]uint32) error {
	i := m.Len()
	dir, name := path.Split(s.Path)
	dir = strings.TrimSuffix(dir, "/")
	if err := errors.Join(CheckFolder(dir), CheckName([]byte(name))); err != nil {
		return err
	}
	if err := checkLimits(0, int64(len(m.names)+len(name))); err != nil {
		return err
	}
	switch {
	case s.Format >= formats:
		return fmt.Errorf("unknown format %d", s.Format)
	case s.Label < 0 || s.Label >= len(m.classes):
		return fmt.Errorf("label %d is not one of the %d classes", s.Label, len(m.classes))
	case s.Size < 0 || s.Offset < 0 || s.Offset > math.MaxInt64-RecordCRCBytes-s.Size ||
		s.Format == FormatFile && s.Offset > 0:
		return fmt.Errorf("it cannot have %d bytes at offset %d", s.Size, s.Offset)
	}
	row, known := rows[dir]
	if !known {
		row = uint32(len(m.folders))
		rows[dir], m.folders = row, append(m.folders, Folder{Path: dir})
	}
	m.add(row, name, uint32(s.Label), s.Size, s.ModTime)
	if s.Format != FormatFile {
		m.addFormats()
		m.offsets.wide[i], m.formats[i] = s.Offset, s.Format
	}
	if s.Checksum != 0 && m.checksums == nil {
		m.checksums = make([]uint64, i, cap(m.sizes.wide))
	}
	if m.checksums != nil {
		m.checksums = append(m.checksums, s.Checksum)
	}
	if len(s.Members) == 0 {
		return nil
	}
	t := &m.members
	if t.ends == nil {
		t.ends = make([]uint32, m.Len(), cap(m.sizes.wide))
	}
	for _, member := range s.Members {
		t.add(t.kindNumber(member.Kind), member.Offset, member.Size)
	}
	t.ends[i] = uint32(t.kind.len())
	return t.check(i, s.Size)
}
