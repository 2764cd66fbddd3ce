package dataset

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"rankpool/scheduler"
)

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
func (m *Manifest) Sample(id scheduler.SampleID) Sample {
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
	b := sampleBuilder{m: m, folders: map[string]uint32{}}
	for i := range n {
		if err := b.add(next(i)); err != nil {
			return nil, fmt.Errorf("staging: a manifest of %s: sample %d: %w", root, i, err)
		}
	}
	m.members.numbers = nil
	return m, nil
}

// A sampleBuilder is a manifest under construction, sample by sample.
type sampleBuilder struct {
	m       *Manifest
	folders map[string]uint32 // rows of the folder table
}

func (b *sampleBuilder) add(s Sample) error {
	m, i := b.m, b.m.Len()
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
	m.add(b.folder(dir), name, uint32(s.Label), s.Size, s.ModTime)
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
	return b.addMembers(scheduler.SampleID(i), s)
}

// addMembers appends the members of sample id, which is the last.
func (b *sampleBuilder) addMembers(id scheduler.SampleID, s Sample) error {
	t := &b.m.members
	if t.ends == nil {
		t.ends = make([]uint32, b.m.Len(), cap(b.m.sizes.wide))
	}
	for _, member := range s.Members {
		t.add(t.kindNumber(member.Kind), member.Offset, member.Size)
	}
	t.ends[id] = uint32(t.kind.len())
	return t.check(int(id), s.Size)
}

// folder returns the row of a folder.
func (b *sampleBuilder) folder(dir string) uint32 {
	row, known := b.folders[dir]
	if !known {
		row = uint32(len(b.m.folders))
		b.folders[dir] = row
		b.m.folders = append(b.m.folders, Folder{Path: dir})
	}
	return row
}
