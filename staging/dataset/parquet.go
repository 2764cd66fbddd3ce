package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"rankpool/scheduler/draw"
)

// The keys of a manifest file's metadata: its version, and a JSON text of a header.
const (
	keyVersion = "rankpool.version"
	keyHeader  = "rankpool.header"

	manifestVersion = "3"
)

// A header is what a manifest file holds besides its samples. Names are bytes, in base64, because
// they need not be valid UTF-8.
type header struct {
	Root        []byte   `json:"root"`
	Classes     [][]byte `json:"classes"`
	Folders     [][]byte `json:"folders"`
	FolderTimes []int64  `json:"folder_times"`
	LeavesOut   bool     `json:"leaves_out"`
	OtherKinds  bool     `json:"other_kinds"`
	Pieces      []byte   `json:"pieces,omitempty"` // encoded
}

// rowsPerGroup is how many samples a row group holds: enough that its columns are long runs, few
// enough that a group of 60-byte paths stays below 32 MiB in a reader.
const rowsPerGroup = 1 << 19

// A row is one sample in a manifest file. Text is string if all paths are valid UTF-8, so that
// other readers see strings, else []byte.
type row[Text string | []byte] struct {
	ID       int64       `parquet:"id"`
	Path     Text        `parquet:"path"`
	Offset   int64       `parquet:"offset"`
	Size     int64       `parquet:"size"`
	Label    int32       `parquet:"label"`
	Class    Text        `parquet:"class,dict"`
	ModTime  int64       `parquet:"mtime,timestamp(nanosecond)"`
	Format   string      `parquet:"format,dict"`
	Checksum uint64      `parquet:"xxh3"`
	Members  []memberRow `parquet:"members,list"`
}

// The columns of a row, in order.
const (
	columnID = iota
	columnPath
	columnOffset
	columnSize
	columnLabel
	columnClass
	columnModTime
	columnFormat
	columnChecksum
	columnMemberKind
	columnMemberOffset
	columnMemberSize
)

type memberRow struct {
	Kind   string `parquet:"kind,dict"`
	Offset int64  `parquet:"offset"`
	Size   int64  `parquet:"size"`
}

// WriteParquet writes m to the file path atomically (writeAtomic).
//
// Columns, one row per sample in the order of ids: id, path (relative to the root; string, or
// binary if any path is not UTF-8), offset and size (bytes), label, class (the label's name), mtime
// (a UTC timestamp in nanoseconds), format (its name), xxh3 (the checksum, 0: unknown) and members
// (a list of kind, offset and size; empty: the sample is one range of bytes). The metadata hold the
// root, the classes, and all folders with their modification times.
func WriteParquet(path string, m *Manifest) error {
	if err := writeAtomic(path, m.encode); err != nil {
		return fmt.Errorf("staging: write manifest %s: %w", path, err)
	}
	return nil
}

// encode writes the manifest file to w.
func (m *Manifest) encode(w io.Writer) error {
	if m.isText() {
		return writeRows[string](w, m)
	}
	return writeRows[[]byte](w, m)
}

// EncodeManifest returns what WriteParquet would write, to send it to another rank.
func EncodeManifest(m *Manifest) ([]byte, error) {
	var out bytes.Buffer
	if err := m.encode(&out); err != nil {
		return nil, fmt.Errorf("staging: encode the manifest of %s: %w", m.root, err)
	}
	return out.Bytes(), nil
}

func (m *Manifest) isText() bool {
	for _, in := range m.folders {
		if !utf8.ValidString(in.Path) {
			return false
		}
	}
	for _, class := range m.classes {
		if !utf8.ValidString(class) {
			return false
		}
	}
	// name by name: the end of one and the start of the next may look like valid UTF-8 together
	for id := range draw.SampleID(m.Len()) {
		if !utf8.Valid(m.name(id)) {
			return false
		}
	}
	return true
}

func writeRows[Text string | []byte](out io.Writer, m *Manifest) error {
	w := parquet.NewGenericWriter[row[Text]](out,
		parquet.KeyValueMetadata(keyVersion, manifestVersion),
		parquet.KeyValueMetadata(keyHeader, m.header()),
		parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowsPerGroup))
	batch := make([]row[Text], 0, 4096)
	for i := range m.Len() {
		batch = append(batch, rowOf[Text](m, draw.SampleID(i)))
		if len(batch) == cap(batch) || i == m.Len()-1 {
			if _, err := w.Write(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return w.Close()
}

func rowOf[Text string | []byte](m *Manifest, id draw.SampleID) row[Text] {
	s := m.Sample(id)
	r := row[Text]{
		ID: int64(id), Path: Text(s.Path), Offset: s.Offset, Size: s.Size, Label: int32(s.Label),
		Class: Text(m.classes[s.Label]), ModTime: s.ModTime, Format: s.Format.String(),
		Checksum: s.Checksum,
	}
	for _, member := range s.Members {
		r.Members = append(r.Members, memberRow(member))
	}
	return r
}

func (m *Manifest) header() string {
	h := header{Root: []byte(m.root), LeavesOut: m.leavesOut, OtherKinds: m.otherKinds}
	for _, class := range m.classes {
		h.Classes = append(h.Classes, []byte(class))
	}
	for _, in := range m.folders {
		h.Folders = append(h.Folders, []byte(in.Path))
		h.FolderTimes = append(h.FolderTimes, in.ModTime)
	}
	if m.pieces != nil {
		h.Pieces = m.pieces.encode()
	}
	text, _ := json.Marshal(h) // marshalling bytes and integers cannot fail
	return string(text)
}

// ReadParquet reads a manifest that WriteParquet wrote.
//
// Errors, one sentence each that names the file: it cannot be read, is not a parquet file, is
// truncated or damaged, is not a rankpool manifest or has another version, has ids other than
// 0 … N-1 in order, or an invalid sample (Builder.Add).
func ReadParquet(path string) (*Manifest, error) {
	m, err := readParquet(path)
	if err != nil {
		return nil, fmt.Errorf("staging: manifest %s: %w", path, err)
	}
	return m, nil
}

func readParquet(path string) (*Manifest, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return parseParquet(f, info.Size())
}

// DecodeManifest decodes what EncodeManifest returned. Errors: as for ReadParquet.
func DecodeManifest(data []byte) (*Manifest, error) {
	m, err := parseParquet(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("staging: the manifest of another rank: %w", err)
	}
	return m, nil
}

// parseParquet reads a manifest of sizeBytes bytes.
func parseParquet(in io.ReaderAt, sizeBytes int64) (m *Manifest, err error) {
	defer func() { // the library panics on some damaged files
		if recover() != nil {
			m, err = nil, errors.New("is damaged")
		}
	}()
	file, err := parquet.OpenFile(in, sizeBytes, parquet.SkipPageIndex(true),
		parquet.SkipBloomFilters(true), parquet.ReadBufferSize(256<<10))
	if err != nil {
		return nil, fmt.Errorf("is not a parquet file, or is damaged: %w", err)
	}
	b, classes, err := readHeader(file)
	if err != nil {
		return nil, err
	}
	for _, group := range file.RowGroups() {
		if err := readGroup(group, b); err != nil {
			return nil, err
		}
	}
	if rows := int64(b.m.Len()); rows != file.NumRows() {
		return nil, fmt.Errorf("is damaged: it has %d samples and not %d", rows, file.NumRows())
	}
	b.m.names = bytes.Clone(b.m.names) // appending left up to a quarter unused
	return b.Manifest(classes)
}

// readHeader reads the metadata and checks the columns.
func readHeader(file *parquet.File) (*Builder, []string, error) {
	text, isOurs := file.Lookup(keyHeader)
	switch version, _ := file.Lookup(keyVersion); {
	case version == "":
		return nil, nil, errors.New("is a parquet file but not a rankpool manifest")
	case version != manifestVersion || !isOurs:
		return nil, nil, fmt.Errorf("has version %q, only %s is known: index the data set again",
			version, manifestVersion)
	case !parquet.EqualNodes(file.Schema(), parquet.SchemaOf(row[string]{})) &&
		!parquet.EqualNodes(file.Schema(), parquet.SchemaOf(row[[]byte]{})):
		return nil, nil, errors.New("has other columns than a manifest")
	}
	var h header
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil, nil, fmt.Errorf("has a damaged header: %w", err)
	}
	if len(h.FolderTimes) != len(h.Folders) {
		return nil, nil, fmt.Errorf("has %d folders and %d folder times", len(h.Folders),
			len(h.FolderTimes))
	}
	// The footer may be wrong, so it does not alone determine how much memory is allocated.
	b := NewBuilder(filepath.Clean(string(h.Root)), int(max(0, min(file.NumRows(), file.Size()))))
	b.m.leavesOut, b.m.otherKinds = h.LeavesOut, h.OtherKinds
	if h.Pieces != nil {
		b.Pieces(decodePieces(&indexReader{data: h.Pieces}))
	}
	for i, path := range h.Folders {
		if err := b.AddFolder(Folder{string(path), h.FolderTimes[i]}); err != nil {
			return nil, nil, err
		}
	}
	classes := make([]string, len(h.Classes))
	for i, class := range h.Classes {
		classes[i] = string(class)
	}
	return b, classes, nil
}

// readGroup adds the samples of a row group.
func readGroup(group parquet.RowGroup, b *Builder) error {
	rows := group.Rows()
	defer rows.Close()
	var buffer [256]parquet.Row
	for {
		n, err := rows.ReadRows(buffer[:])
		for _, row := range buffer[:n] {
			i := int64(b.m.Len())
			s, rowErr := sampleOf(row, i)
			if rowErr == nil {
				rowErr = b.Add(s)
			}
			if rowErr != nil {
				return fmt.Errorf("sample %d: %w", i, rowErr)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("is damaged: %w", err)
		case n == 0:
			return errors.New("is damaged: it ends early")
		}
	}
}

// sampleOf returns the sample in row i.
func sampleOf(row parquet.Row, i int64) (s Sample, err error) {
	offsets, sizes := 0, 0 // of members so far
	for _, v := range row {
		switch column := v.Column(); column {
		case columnID:
			if v.Int64() != i {
				return Sample{}, fmt.Errorf("it has the id %d: ids must be 0 to N-1 in order", v.Int64())
			}
		case columnPath:
			s.Path = string(v.ByteArray())
		case columnOffset:
			s.Offset = v.Int64()
		case columnSize:
			s.Size = v.Int64()
		case columnLabel:
			s.Label = int(v.Int32())
		case columnModTime:
			s.ModTime = v.Int64()
		case columnFormat:
			known := false
			if s.Format, known = formatOf(string(v.ByteArray())); !known {
				return Sample{}, fmt.Errorf("unknown format %q: index the data again", v.ByteArray())
			}
		case columnChecksum:
			s.Checksum = v.Uint64()
		case columnMemberKind, columnMemberOffset, columnMemberSize:
			switch {
			case v.IsNull(): // there are none
			case column == columnMemberKind:
				s.Members = append(s.Members, Member{Kind: string(v.ByteArray())})
			case column == columnMemberOffset:
				s.Members[offsets].Offset = v.Int64() // the columns of a row have the same length
				offsets++
			default:
				s.Members[sizes].Size = v.Int64()
				sizes++
			}
		}
	}
	return s, nil
}
