package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
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
	indexHasPieces    = 64 // rows are pieces, and rows have the number of a name
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

// indexSumBytes is the size of the XXH3 hash (64 bits) that ends an index, of all that precedes it.
const indexSumBytes = 8

// WriteIndex writes the sample index of m to the file path atomically (writeAtomic).
func WriteIndex(path string, m *Manifest) error {
	err := writeAtomic(path, func(w io.Writer) error {
		hash := xxh3.New()
		if err := writeIndex(io.MultiWriter(w, hash), m); err != nil {
			return err
		}
		return binary.Write(w, binary.LittleEndian, hash.Sum64())
	})
	if err != nil {
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
	}
	if m.pieces != nil {
		flags |= indexHasPieces
		columns = append(columns, plain(&m.named), fixed[uint64]{uint64(len(m.nameEnds))})
	}
	columns = append(columns, fixed[uint32](m.nameEnds))
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
	if m.pieces != nil {
		columns = append(columns, encoded(m.pieces.encode()))
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
// the index.
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
	if len(data) < indexHeaderBytes+indexSumBytes || string(data[:len(indexMagic)]) != indexMagic {
		return nil, errors.New("is not a sample index")
	}
	content, sum := data[:len(data)-indexSumBytes], data[len(data)-indexSumBytes:]
	if xxh3.Hash(content) != binary.LittleEndian.Uint64(sum) {
		return nil, errors.New("is truncated or damaged: its checksum is wrong")
	}
	var header indexHeader
	_, _ = binary.Decode(content, binary.LittleEndian, &header) // it is long enough
	m := &Manifest{known: &header.Identity, leavesOut: header.Flags&indexLeavesOut != 0}
	r := &indexReader{data: content, at: indexHeaderBytes}
	m.parseColumns(r, header)
	m.parseTexts(r, header)
	return m, nil
}

// parseColumns reads the columns, in the order of indexColumns.
func (m *Manifest) parseColumns(r *indexReader, header indexHeader) {
	n := header.Samples
	m.sizes.read(r, n)
	m.modTimes.read(r, n)
	m.labels.read(r, n)
	m.inFolder.read(r, n)
	names := n
	if header.Flags&indexHasPieces != 0 {
		m.named.read(r, n)
		names = r.long()
	}
	readFixed(r, &m.nameEnds, names)
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
		count := uint64(t.ends[n-1])
		t.offsets.read(r, count)
		t.sizes.read(r, count)
		t.kind.read(r, count)
	}
	if header.Flags&indexHasPieces != 0 {
		m.pieces = decodePieces(r)
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

// An indexReader reads an index from an offset on. It panics beyond the end: the index has the
// checksum that WriteIndex has written.
type indexReader struct {
	data []byte
	at   uint64
}

// next returns the next sizeBytes bytes.
func (r *indexReader) next(sizeBytes uint64) []byte {
	r.at += sizeBytes
	return r.data[r.at-sizeBytes : r.at]
}

// number returns the next number (u32).
func (r *indexReader) number() uint64 { return uint64(binary.LittleEndian.Uint32(r.next(4))) }

// long returns the next number of 8 bytes (u64).
func (r *indexReader) long() uint64 { return binary.LittleEndian.Uint64(r.next(8)) }

// texts returns the next count texts, each of which is preceded by its length (u32).
func (r *indexReader) texts(count uint64) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = string(r.next(r.number()))
	}
	return all
}
