package staging

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
	indexMagic        = "rpindex3"
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
	var columns []any
	columns, header.Flags = m.indexColumns()
	var table []byte
	for _, in := range m.folders {
		table = appendText(table, in.path)
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
		header.FolderPlace += align8(uint64(binary.Size(column)))
	}
	header.NamePlace = header.FolderPlace + uint64(len(table))
	header.RootPlace = header.NamePlace + header.NameBytes
	header.ClassPlace = header.RootPlace + header.RootBytes

	if err := binary.Write(w, binary.LittleEndian, header); err != nil {
		return err
	}
	for _, column := range columns {
		if err := writeColumn(w, column); err != nil {
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
func (m *Manifest) indexColumns() (columns []any, flags uint32) {
	columns = []any{m.sizes, m.modTimes, m.labels, m.inFolder, m.nameEnds}
	if m.offsets != nil {
		flags |= indexHasOffsets
		columns = append(columns, m.offsets, m.formats)
	}
	if m.checksums != nil {
		flags |= indexHasChecksums
		columns = append(columns, m.checksums)
	}
	if t := m.members; t.ends != nil {
		flags |= indexHasMembers
		if m.HasMembers() {
			flags |= indexManyMembers
		}
		columns = append(columns, t.ends, t.offsets, t.sizes, t.kind)
	}
	return columns, flags
}

// appendText appends a text preceded by its length (u32).
func appendText(table []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint32(table, uint32(len(text))), text...)
}

// writeColumn writes a slice of integers and pads it to a multiple of 8 bytes.
func writeColumn(w io.Writer, column any) error {
	if err := binary.Write(w, binary.LittleEndian, column); err != nil {
		return err
	}
	size := uint64(binary.Size(column))
	_, err := w.Write(make([]byte, align8(size)-size))
	return err
}

func align8(n uint64) uint64 { return (n + 7) &^ 7 }

// OpenIndex maps a sample index that WriteIndex wrote: its columns need no memory beside the
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
	if _, err := binary.Decode(data, binary.LittleEndian, &header); err != nil {
		return nil, err
	}
	if header.Flags >= 2*indexManyMembers {
		return nil, fmt.Errorf("has unknown flags %#x", header.Flags)
	}
	// 28 bytes of columns per sample
	if n := header.Samples; n > math.MaxUint32 || n*28 > uint64(len(data)) {
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
	n, at := header.Samples, uint64(indexHeaderBytes)
	for _, column := range []*[]int64{&m.sizes, &m.modTimes} {
		at += takeColumn(column, data, at, n)
	}
	for _, column := range []*[]uint32{&m.labels, &m.inFolder, &m.nameEnds} {
		at += takeColumn(column, data, at, n)
	}
	if header.Flags&indexHasOffsets != 0 {
		at += takeColumn(&m.offsets, data, at, n)
		at += takeColumn(&m.formats, data, at, n)
	}
	if header.Flags&indexHasChecksums != 0 {
		at += takeColumn(&m.checksums, data, at, n)
	}
	if header.Flags&indexHasMembers != 0 {
		t := &m.members
		at += takeColumn(&t.ends, data, at, n)
		if at > uint64(len(data)) {
			return errors.New("is truncated")
		}
		count := uint64(0)
		if n > 0 {
			count = uint64(t.ends[n-1])
		}
		at += takeColumn(&t.offsets, data, at, count)
		at += takeColumn(&t.sizes, data, at, count)
		at += takeColumn(&t.kind, data, at, count)
	}
	if at > uint64(len(data)) {
		return errors.New("is truncated")
	}
	return nil
}

// parseTexts parses the folder table, the kinds of the members, the names, the root and the
// classes.
func (m *Manifest) parseTexts(data []byte, header indexHeader) (err error) {
	at, err := readTexts(data, header.FolderPlace, uint64(header.Folders), func(path string) {
		m.folders = append(m.folders, folder{path: path})
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
		if err := checkFolder(in.path); err != nil {
			return err
		}
	}
	start := uint32(0)
	for i, end := range m.nameEnds {
		switch {
		case end < start || uint64(end) > uint64(len(m.names)):
			return fmt.Errorf("the name of sample %d ends outside the names", i)
		case m.inFolder[i] >= uint32(len(m.folders)):
			return fmt.Errorf("sample %d is in folder %d of %d", i, m.inFolder[i], len(m.folders))
		case m.sizes[i] < 0, m.offsets != nil &&
			(m.offsets[i] < 0 || m.offsets[i] > math.MaxInt64-crcBytes-m.sizes[i]):
			return fmt.Errorf("sample %d has an impossible size or offset", i)
		case m.formats != nil && m.formats[i] >= formats:
			return fmt.Errorf("sample %d has the unknown format %d", i, m.formats[i])
		}
		if err := m.members.check(i, m.sizes[i]); err != nil {
			return err
		}
		if err := checkName(m.names[start:end]); err != nil {
			return fmt.Errorf("sample %d: %w", i, err)
		}
		start = end
	}
	if uint64(start) != uint64(len(m.names)) {
		return fmt.Errorf("%d bytes of names belong to no sample", uint64(len(m.names))-uint64(start))
	}
	return nil
}
