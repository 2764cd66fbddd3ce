package dataset

import (
	"cmp"
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
	indexHasOffsets   = 1  // flags: columns of offsets and formats
	indexHasChecksums = 2  // a column of checksums
	indexHasMembers   = 4  // the columns of the members, and the table of their kinds
	indexManyMembers  = 8  // some sample has more than one member
	indexLeavesOut    = 16 // some class folder has entries that are no samples
	indexOtherKinds   = 32 // class folders have other files, none with the extension of a sample
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
	Identity    Identity
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
		Magic: [8]byte([]byte(indexMagic)), Samples: uint64(m.Len()), Folders: uint32(len(m.folders)),
		NameBytes: uint64(len(m.names)), RootBytes: uint64(len(m.root)), Classes: uint64(len(m.classes)),
		Identity: m.Identity(),
	}
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
	if m.leavesOut {
		flags |= indexLeavesOut
	}
	if m.otherKinds {
		flags |= indexOtherKinds
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
	if header.Flags >= 2*indexOtherKinds {
		return nil, fmt.Errorf("has unknown flags %#x", header.Flags)
	}
	// 8 bytes of columns a sample, or more
	if n := header.Samples; n > math.MaxUint32 || n*8 > uint64(len(data)) {
		return nil, errors.New("is truncated")
	}
	m := &Manifest{
		known:      &header.Identity,
		leavesOut:  header.Flags&indexLeavesOut != 0,
		otherKinds: header.Flags&indexOtherKinds != 0,
	}
	r := &indexReader{data: data, at: indexHeaderBytes}
	m.parseColumns(r, header)
	m.parseTexts(r, header)
	if r.err != nil {
		return nil, r.err
	}
	return m, m.checkIndex()
}

// parseColumns reads the columns, in the order of indexColumns.
func (m *Manifest) parseColumns(r *indexReader, header indexHeader) {
	n := header.Samples
	m.sizes.read(r, n)
	m.modTimes.read(r, n)
	m.labels.read(r, n)
	m.inFolder.read(r, n)
	readFixed(r, &m.nameEnds, n)
	if header.Flags&indexHasOffsets != 0 {
		m.offsets.read(r, n)
		readFixed(r, &m.formats, n)
	}
	if header.Flags&indexHasChecksums != 0 {
		readFixed(r, &m.checksums, n)
	}
	if header.Flags&indexHasMembers != 0 {
		t := &m.members
		readFixed(r, &t.ends, n)
		count := uint64(0)
		if n > 0 && r.err == nil {
			count = uint64(t.ends[n-1])
		}
		t.offsets.read(r, count)
		t.sizes.read(r, count)
		t.kind.read(r, count)
	}
}

// parseTexts reads the folder table, the kinds of the members, the classes, the root and the names.
func (m *Manifest) parseTexts(r *indexReader, header indexHeader) {
	r.at = header.FolderPlace
	for _, path := range r.texts(uint64(header.Folders)) {
		m.folders = append(m.folders, Folder{Path: path})
	}
	if header.Flags&indexHasMembers != 0 {
		m.members.kinds = r.texts(r.number())
	}
	r.at = header.ClassPlace
	m.classes = r.texts(header.Classes)
	r.at = header.RootPlace
	m.root = string(r.next(header.RootBytes))
	r.at = header.NamePlace
	m.names = r.next(header.NameBytes)
}

// An indexReader reads an index from an offset on; after an error it reads nothing more.
type indexReader struct {
	data []byte
	at   uint64
	err  error
}

// next returns the next sizeBytes bytes.
func (r *indexReader) next(sizeBytes uint64) []byte {
	if r.at > uint64(len(r.data)) || sizeBytes > uint64(len(r.data))-r.at {
		r.err = cmp.Or(r.err, errors.New("is truncated"))
	}
	if r.err != nil {
		return nil
	}
	r.at += sizeBytes
	return r.data[r.at-sizeBytes : r.at]
}

// number returns the next number (u32).
func (r *indexReader) number() uint64 {
	raw := r.next(4)
	if r.err != nil {
		return 0
	}
	return uint64(binary.LittleEndian.Uint32(raw))
}

// texts returns the next count texts, each of which is preceded by its length (u32).
func (r *indexReader) texts(count uint64) (all []string) {
	for ; count > 0 && r.err == nil; count-- {
		all = append(all, string(r.next(r.number())))
	}
	return all
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
			return fmt.Errorf("sample %d: %w", i, err)
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
