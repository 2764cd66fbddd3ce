package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// The sample index is the file that training processes map, to find labels, and to read storage
// without a rank. docs/wire/README.md, "The sample index", describes it. All integers are
// little-endian.
const (
	indexMagic        = "rpindex4"
	indexHasOffsets   = 1 // flags: columns of offsets and formats
	indexHasChecksums = 2 // a column of checksums
	indexHasMembers   = 4 // the columns of the members, and the table of their kinds
	indexManyMembers  = 8 // some sample has more than one member
	indexHeaderBytes  = 128
)

// An indexHeader is the first 128 bytes of an index; offsets and sizes are in bytes, from the start
// of the file.
type indexHeader struct {
	Magic       [8]byte
	Samples     uint64
	Flags       uint32
	Folders     uint32
	FolderPlace uint64
	NamePlace   uint64
	NameBytes   uint64
	RootPlace   uint64
	RootBytes   uint64
	ClassPlace  uint64
	Classes     uint64
	Digest      Digest // of the Identity, like the next two
	Contents    Digest
	Times       Digest
}

// WriteIndex writes the sample index of m to the file path atomically (writeAtomic).
func WriteIndex(path string, m *Manifest) error {
	if err := writeAtomic(path, func(w io.Writer) error { return writeIndex(w, m) }); err != nil {
		return fmt.Errorf("staging: write sample index %s: %w", path, err)
	}
	return nil
}

func writeIndex(w io.Writer, m *Manifest) error {
	header := indexHeader{
		Samples: uint64(m.Len()), Folders: uint32(len(m.folders)),
		NameBytes: uint64(len(m.names)), RootBytes: uint64(len(m.root)), Classes: uint64(len(m.classes)),
	}
	id := m.Identity()
	header.Digest, header.Contents, header.Times = id.Digest, id.Contents, id.Times
	copy(header.Magic[:], indexMagic)
	var columns []indexColumn
	columns, header.Flags = m.indexColumns()
	var table []byte
	for _, in := range m.folders {
		table = appendText(table, in.Path)
	}
	if header.Flags&indexHasMembers != 0 {
		table = binary.LittleEndian.AppendUint32(table, uint32(len(m.members.kinds)))
		for _, kind := range m.members.kinds {
			table = appendText(table, kind)
		}
	}
	var classes []byte
	for _, class := range m.classes {
		classes = appendText(classes, class)
	}
	header.FolderPlace = indexHeaderBytes
	for _, column := range columns {
		header.FolderPlace += column.sizeBytes()
	}
	header.NamePlace = header.FolderPlace + uint64(len(table))
	header.RootPlace = header.NamePlace + header.NameBytes
	header.ClassPlace = header.RootPlace + header.RootBytes

	if err := binary.Write(w, binary.LittleEndian, header); err != nil {
		return err
	}
	for _, column := range columns {
		if err := column.write(w); err != nil {
			return err
		}
	}
	for _, blob := range [][]byte{table, m.names, []byte(m.root), classes} {
		if _, err := w.Write(blob); err != nil {
			return err
		}
	}
	return nil
}

// indexColumns returns the columns of an index in order, and the flags that say which exist.
func (m *Manifest) indexColumns() (columns []indexColumn, flags uint32) {
	columns = []indexColumn{
		plain(&m.sizes), scaled(&m.modTimes), plain(&m.labels), plain(&m.inFolder),
		fixed[uint32](m.nameEnds),
	}
	if !m.offsets.absent() {
		flags |= indexHasOffsets
		columns = append(columns, scaled(&m.offsets), fixed[Format](m.formats))
	}
	if m.checksums != nil {
		flags |= indexHasChecksums
		columns = append(columns, fixed[uint64](m.checksums))
	}
	if t := &m.members; t.ends != nil {
		flags |= indexHasMembers
		if m.HasMembers() {
			flags |= indexManyMembers
		}
		columns = append(columns,
			fixed[uint32](t.ends), scaled(&t.offsets), plain(&t.sizes), plain(&t.kind))
	}
	return columns, flags
}

// appendText appends a text preceded by its length (u32).
func appendText(table []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint32(table, uint32(len(text))), text...)
}

// OpenIndex maps a sample index that WriteIndex wrote: its columns need no memory beyond the
// file's, and stay mapped as long as the process lives. What an index does not contain is missing
// from the manifest: its folders have no modification times. The manifest's Identity is the one in
// the index; CheckIdentity compares it with the columns.
//
// Errors, one sentence each that names the file: it cannot be read, is not a sample index, is
// truncated or damaged.
func OpenIndex(path string) (*Manifest, error) {
	data, err := mapFile(path)
	if err != nil {
		return nil, fmt.Errorf("staging: sample index: %w", err)
	}
	m, err := parseIndex(data)
	if err != nil {
		return nil, fmt.Errorf("staging: sample index %s: %w", path, err)
	}
	return m, nil
}

func parseIndex(data []byte) (*Manifest, error) {
	var header indexHeader
	if len(data) < indexHeaderBytes || string(data[:len(indexMagic)]) != indexMagic {
		return nil, errors.New("is not a sample index")
	}
	_, _ = binary.Decode(data, binary.LittleEndian, &header) // data is long enough
	if header.Flags >= 2*indexManyMembers {
		return nil, fmt.Errorf("has unknown flags %#x", header.Flags)
	}
	// 8 bytes of columns a sample, or more
	if n := header.Samples; n > math.MaxUint32 || n*8 > uint64(len(data)) {
		return nil, errors.New("is truncated")
	}
	m := &Manifest{}
	if err := m.parseColumns(data, header); err != nil {
		return nil, err
	}
	if err := m.parseTexts(data, header); err != nil {
		return nil, err
	}
	return m, m.checkIndex()
}

// parseColumns parses the columns, in the order of indexColumns.
func (m *Manifest) parseColumns(data []byte, header indexHeader) error {
	c := columnReader{rest: data[indexHeaderBytes:]}
	n := header.Samples
	m.sizes.read(&c, n)
	m.modTimes.read(&c, n)
	m.labels.read(&c, n)
	m.inFolder.read(&c, n)
	readFixed(&c, &m.nameEnds, n)
	if header.Flags&indexHasOffsets != 0 {
		m.offsets.read(&c, n)
		readFixed(&c, &m.formats, n)
	}
	if header.Flags&indexHasChecksums != 0 {
		readFixed(&c, &m.checksums, n)
	}
	if header.Flags&indexHasMembers != 0 {
		t := &m.members
		readFixed(&c, &t.ends, n)
		count := uint64(0)
		if n > 0 && c.err == nil {
			count = uint64(t.ends[n-1])
		}
		t.offsets.read(&c, count)
		t.sizes.read(&c, count)
		t.kind.read(&c, count)
	}
	return c.err
}

// parseTexts parses the folder table, the kinds of the members, the names, the root and the
// classes.
func (m *Manifest) parseTexts(data []byte, header indexHeader) (err error) {
	at, err := readTexts(data, header.FolderPlace, uint64(header.Folders), func(path string) {
		m.folders = append(m.folders, Folder{Path: path})
	})
	if err != nil {
		return err
	}
	if header.Flags&indexHasMembers != 0 {
		count, err := cut(data, at, 4)
		if err != nil {
			return err
		}
		use := func(kind string) { m.members.kinds = append(m.members.kinds, kind) }
		if _, err := readTexts(data, at+4, uint64(binary.LittleEndian.Uint32(count)), use); err != nil {
			return err
		}
	}
	if _, err := readTexts(data, header.ClassPlace, header.Classes,
		func(c string) { m.classes = append(m.classes, c) }); err != nil {
		return err
	}
	root, err := cut(data, header.RootPlace, header.RootBytes)
	if err != nil {
		return err
	}
	m.root = string(root)
	m.names, err = cut(data, header.NamePlace, header.NameBytes)
	m.known = &Identity{header.Digest, header.Contents, header.Times}
	return err
}

// readTexts reads count texts at offset at, and returns where they end.
func readTexts(data []byte, at, count uint64, use func(string)) (end uint64, err error) {
	for range count {
		size, err := cut(data, at, 4)
		if err != nil {
			return 0, err
		}
		text, err := cut(data, at+4, uint64(binary.LittleEndian.Uint32(size)))
		if err != nil {
			return 0, err
		}
		use(string(text))
		at += 4 + uint64(len(text))
	}
	return at, nil
}

// cut returns sizeBytes bytes of data at an offset.
func cut(data []byte, place, sizeBytes uint64) ([]byte, error) {
	if place > uint64(len(data)) || sizeBytes > uint64(len(data))-place {
		return nil, errors.New("is truncated")
	}
	return data[place : place+sizeBytes], nil
}

// CheckIdentity returns an error if the content of an index differs from its header: it was
// damaged.
func (m *Manifest) CheckIdentity() error {
	now := *m
	now.known = nil
	if m.known != nil && now.Identity() != *m.known {
		return errors.New("staging: the sample index is damaged: its digest is wrong")
	}
	return nil
}

// checkIndex returns an error if the columns are inconsistent.
func (m *Manifest) checkIndex() error {
	if err := checkRoot(m.root); err != nil {
		return err
	}
	for _, in := range m.folders {
		if err := CheckFolder(in.Path); err != nil {
			return err
		}
	}
	start := uint32(0)
	for i, end := range m.nameEnds {
		switch {
		case end < start || uint64(end) > uint64(len(m.names)):
			return fmt.Errorf("the name of sample %d ends outside the names", i)
		case m.inFolder.at(i) >= uint32(len(m.folders)):
			return fmt.Errorf("sample %d is in folder %d of %d", i, m.inFolder.at(i), len(m.folders))
		case int(m.labels.at(i)) >= len(m.classes):
			return fmt.Errorf("sample %d has the label %d, but there are %d classes", i,
				m.labels.at(i), len(m.classes))
		case m.sizes.at(i) < 0, !m.offsets.absent() &&
			(m.offsets.at(i) < 0 || m.offsets.at(i) > math.MaxInt64-RecordCRCBytes-m.sizes.at(i)):
			return fmt.Errorf("sample %d has an impossible size or offset", i)
		case m.formats != nil && m.formats[i] >= formats:
			return fmt.Errorf("sample %d has the unknown format %d", i, m.formats[i])
		}
		if err := m.members.check(i, m.sizes.at(i)); err != nil {
			return err
		}
		if err := CheckName(m.names[start:end]); err != nil {
			return fmt.Errorf("sample %d: %w", i, err)
		}
		start = end
	}
	if uint64(start) != uint64(len(m.names)) {
		return fmt.Errorf("%d bytes of names belong to no sample", uint64(len(m.names))-uint64(start))
	}
	return nil
}
