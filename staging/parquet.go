package staging

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"rankpool/scheduler"
)

// The keys of a manifest file's metadata. Classes and folders are JSON arrays of strings (encodeNames), folder times
// a JSON array of integers.
const (
	keyVersion     = "rankpool.version"
	keyRoot        = "rankpool.root"
	keyClasses     = "rankpool.classes"
	keyFolders     = "rankpool.folders"
	keyFolderTimes = "rankpool.folder_mtimes"

	manifestVersion = "1"
)

// rowsPerGroup is how many samples a row group holds: enough that its columns are long runs, few enough that one
// group of 60-byte paths stays below 32 MiB in a reader.
const rowsPerGroup = 1 << 19

// A row is one sample in a manifest file. Text is string when all paths are valid UTF-8, so that other readers see
// strings, and []byte when they are not.
type row[Text string | []byte] struct {
	ID      int64 `parquet:"id"`
	Path    Text  `parquet:"path"`
	Offset  int64 `parquet:"offset"`
	Size    int64 `parquet:"size"`
	Label   int32 `parquet:"label"`
	Class   Text  `parquet:"class,dict"`
	ModTime int64 `parquet:"mtime,timestamp(nanosecond)"`
}

// WriteParquet writes m to the file path, whole or not at all (writeAtomic).
//
// Columns, one row a sample in the order of ids: id, path (relative to the root; string, or binary when some path is
// not UTF-8), offset and size (bytes), label, class (the label's name), mtime (a UTC timestamp of nanoseconds). The
// metadata hold the root, the classes, and all folders with their modification times.
func WriteParquet(path string, m *Manifest) error {
	err := writeAtomic(path, func(w io.Writer) error {
		if m.isText() {
			return writeRows[string](w, m)
		}
		return writeRows[[]byte](w, m)
	})
	if err != nil {
		return fmt.Errorf("staging: write manifest %s: %w", path, err)
	}
	return nil
}

func (m *Manifest) isText() bool {
	for _, in := range m.folders {
		if !utf8.ValidString(in.path) {
			return false
		}
	}
	for _, class := range m.classes {
		if !utf8.ValidString(class) {
			return false
		}
	}
	for id := range m.Len() { // name by name: half a letter at the end of one and at the start of the next is no letter
		if !utf8.Valid(m.name(scheduler.SampleID(id))) {
			return false
		}
	}
	return true
}

func writeRows[Text string | []byte](out io.Writer, m *Manifest) error {
	w := parquet.NewGenericWriter[row[Text]](out, append(m.metadata(),
		parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowsPerGroup))...)
	batch := make([]row[Text], 0, 4096)
	for i := range m.Len() {
		id := scheduler.SampleID(i)
		batch = append(batch, row[Text]{
			ID: int64(i), Path: Text(m.RelPath(id)), Offset: m.Offset(id), Size: m.Size(id),
			Label: int32(m.labels[id]), Class: Text(m.classes[m.labels[id]]), ModTime: m.modTimes[id],
		})
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
		paths[i], times[i] = in.path, in.modTime
	}
	folderTimes, _ := json.Marshal(times) // integers have no error
	return []parquet.WriterOption{
		parquet.KeyValueMetadata(keyVersion, manifestVersion),
		parquet.KeyValueMetadata(keyRoot, m.root),
		parquet.KeyValueMetadata(keyClasses, encodeNames(m.classes)),
		parquet.KeyValueMetadata(keyFolders, encodeNames(paths)),
		parquet.KeyValueMetadata(keyFolderTimes, string(folderTimes)),
	}
}
