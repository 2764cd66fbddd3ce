package dataset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"rankpool/scheduler/draw"
)

// The keys of a manifest file's metadata. Classes and folders are JSON arrays of strings
// (encodeNames), folder times a JSON array of integers; "leaves out" is true or false.
const (
	keyVersion     = "rankpool.version"
	keyRoot        = "rankpool.root"
	keyClasses     = "rankpool.classes"
	keyFolders     = "rankpool.folders"
	keyFolderTimes = "rankpool.folder_mtimes"
	keyLeavesOut   = "rankpool.leaves_out"
	keyOtherKinds  = "rankpool.other_kinds"

	manifestVersion = "2"
	filesVersion    = "1" // of manifests without the columns of a shardedRow
)

// rowsPerGroup is how many samples a row group holds: enough that its columns are long runs, few
// enough that a group of 60-byte paths stays below 32 MiB in a reader.
const rowsPerGroup = 1 << 19

// A row is one sample in a manifest file. Text is string if all paths are valid UTF-8, so that
// other readers see strings, else []byte.
type row[Text string | []byte] struct {
	ID      int64 `parquet:"id"`
	Path    Text  `parquet:"path"`
	Offset  int64 `parquet:"offset"`
	Size    int64 `parquet:"size"`
	Label   int32 `parquet:"label"`
	Class   Text  `parquet:"class,dict"`
	ModTime int64 `parquet:"mtime,timestamp(nanosecond)"`
}

// A shardedRow is a row with the columns that a data set of whole files without checksums does not
// need.
type shardedRow[Text string | []byte] struct {
	row[Text]
	Format   string      `parquet:"format,dict"`
	Checksum uint64      `parquet:"xxh3"`
	Members  []memberRow `parquet:"members,list"`
}

type memberRow struct {
	Kind   string `parquet:"kind,dict"`
	Offset int64  `parquet:"offset"`
	Size   int64  `parquet:"size"`
}

// WriteParquet writes m to the file path atomically (writeAtomic).
//
// Columns, one row per sample in the order of ids: id, path (relative to the root; string, or
// binary if any path is not UTF-8), offset and size (bytes), label, class (the label's name), mtime
// (a UTC timestamp in nanoseconds); if any sample is part of a file or has a checksum also format
// (its name), xxh3 (the checksum, 0: unknown) and members (a list of kind, offset and size; empty:
// the sample is one range of bytes). The metadata hold the root, the classes, and all folders with
// their modification times.
func WriteParquet(path string, m *Manifest) error {
	if err := writeAtomic(path, m.encode); err != nil {
		return fmt.Errorf("staging: write manifest %s: %w", path, err)
	}
	return nil
}

// encode writes the manifest file to w.
func (m *Manifest) encode(w io.Writer) error {
	switch isText, isSharded := m.isText(), m.isSharded(); {
	case isText && isSharded:
		return writeRows(w, m, shardedRowOf[string])
	case isSharded:
		return writeRows(w, m, shardedRowOf[[]byte])
	case isText:
		return writeRows(w, m, rowOf[string])
	default:
		return writeRows(w, m, rowOf[[]byte])
	}
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

// isSharded reports whether m needs the columns of a shardedRow.
func (m *Manifest) isSharded() bool {
	return !m.offsets.absent() || m.checksums != nil || m.members.ends != nil
}

func rowOf[Text string | []byte](m *Manifest, id draw.SampleID) row[Text] {
	return row[Text]{
		ID: int64(id), Path: Text(m.RelPath(id)), Offset: m.Offset(id), Size: m.Size(id),
		Label: int32(m.Label(id)), Class: Text(m.classes[m.Label(id)]), ModTime: m.ModTime(id),
	}
}

func shardedRowOf[Text string | []byte](m *Manifest, id draw.SampleID) shardedRow[Text] {
	sum, _ := m.Checksum(id)
	r := shardedRow[Text]{row: rowOf[Text](m, id), Format: m.Format(id).String(), Checksum: sum}
	for _, member := range m.members.of(id) {
		r.Members = append(r.Members, memberRow(member))
	}
	return r
}

func writeRows[Row any](out io.Writer, m *Manifest,
	rowOf func(*Manifest, draw.SampleID) Row,
) error {
	w := parquet.NewGenericWriter[Row](out, append(m.metadata(),
		parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowsPerGroup))...)
	batch := make([]Row, 0, 4096)
	for i := range m.Len() {
		batch = append(batch, rowOf(m, draw.SampleID(i)))
		if len(batch) == cap(batch) || i == m.Len()-1 {
			if _, err := w.Write(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return w.Close()
}

func (m *Manifest) metadata() []parquet.WriterOption {
	paths := make([]string, len(m.folders))
	times := make([]int64, len(m.folders))
	for i, in := range m.folders {
		paths[i], times[i] = in.Path, in.ModTime
	}
	version := filesVersion
	if m.isSharded() {
		version = manifestVersion
	}
	folderTimes, _ := json.Marshal(times) // marshalling integers cannot fail
	return []parquet.WriterOption{
		parquet.KeyValueMetadata(keyVersion, version),
		parquet.KeyValueMetadata(keyRoot, m.root),
		parquet.KeyValueMetadata(keyClasses, encodeNames(m.classes)),
		parquet.KeyValueMetadata(keyFolders, encodeNames(paths)),
		parquet.KeyValueMetadata(keyFolderTimes, string(folderTimes)),
		parquet.KeyValueMetadata(keyLeavesOut, strconv.FormatBool(m.leavesOut)),
		parquet.KeyValueMetadata(keyOtherKinds, strconv.FormatBool(m.otherKinds)),
	}
}
