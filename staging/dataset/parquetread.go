package dataset

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"rankpool/scheduler/draw"
)

// ReadParquet reads a manifest that WriteParquet wrote, or that another program wrote with the same
// columns and metadata.
//
// Errors, one sentence each that names the file: it cannot be read, is not a parquet file, is
// truncated or damaged, is not a rankpool manifest, has another version, lacks a column, has
// inconsistent columns, ids other than 0 … N-1 in order, a label without class, a path that leads
// out of the root.
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
	if err := checkEnds(in, sizeBytes); err != nil {
		return nil, err
	}
	defer func() { // the library panics on some damaged files
		if recover() != nil {
			m, err = nil, errors.New("is damaged")
		}
	}()
	file, err := parquet.OpenFile(in, sizeBytes, parquet.SkipPageIndex(true),
		parquet.SkipBloomFilters(true), parquet.ReadBufferSize(256<<10))
	if err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	m, err = readMetadata(file)
	if err != nil {
		return nil, err
	}
	if err := checkLimits(file.NumRows(), 0); err != nil {
		return nil, err
	}
	// The footer may be wrong, so it does not alone determine how much memory is allocated.
	m.reserve(int(max(0, min(file.NumRows(), sizeBytes))), 0)
	if err := m.readColumns(file); err != nil {
		return nil, err
	}
	m.names = bytes.Clone(m.names) // appending left up to a quarter unused
	return m, nil
}

// checkEnds distinguishes errors that the library reports alike, and keeps it from allocating
// memory for an impossible footer. A parquet file starts with "PAR1" and ends with a footer, the
// footer's length (u32) and "PAR1".
//
// Source: Apache Parquet, README, "File format".
func checkEnds(in io.ReaderAt, sizeBytes int64) error {
	var head [4]byte
	var tail [8]byte
	if sizeBytes < int64(len(head)+len(tail)) {
		return errors.New("is not a parquet file")
	}
	if _, err := in.ReadAt(head[:], 0); err != nil {
		return err
	}
	if _, err := in.ReadAt(tail[:], sizeBytes-int64(len(tail))); err != nil && err != io.EOF {
		return err
	}
	switch {
	case string(head[:]) != "PAR1":
		return errors.New("is not a parquet file")
	case string(tail[4:]) != "PAR1":
		return errors.New("is truncated")
	case int64(binary.LittleEndian.Uint32(tail[:])) > sizeBytes-int64(len(head)+len(tail)):
		return errors.New("is damaged: its footer is longer than the file")
	}
	return nil
}

func readMetadata(file *parquet.File) (*Manifest, error) {
	lookup := func(key string) string { value, _ := file.Lookup(key); return value }
	switch version := lookup(keyVersion); version {
	case filesVersion, manifestVersion:
	case "":
		return nil, errors.New("is a parquet file but not a rankpool manifest")
	default:
		return nil, fmt.Errorf("has version %q, only %s and %s are known", version, filesVersion,
			manifestVersion)
	}
	m := &Manifest{
		root:       filepath.Clean(lookup(keyRoot)),
		leavesOut:  lookup(keyLeavesOut) == "true",
		otherKinds: lookup(keyOtherKinds) == "true",
	}
	if err := checkRoot(m.root); err != nil {
		return nil, err
	}
	var err error
	if m.classes, err = decodeNames(lookup(keyClasses)); err != nil {
		return nil, fmt.Errorf("has no list of classes: %w", err)
	}
	paths, err := decodeNames(lookup(keyFolders))
	if err != nil {
		return nil, fmt.Errorf("has no list of folders: %w", err)
	}
	var times []int64
	if err := json.Unmarshal([]byte(lookup(keyFolderTimes)), &times); err != nil {
		return nil, fmt.Errorf("has no list of folder times: %w", err)
	}
	if len(times) != len(paths) {
		return nil, fmt.Errorf("has %d folders and %d folder times", len(paths), len(times))
	}
	for i, path := range paths {
		if err := CheckFolder(path); err != nil {
			return nil, err
		}
		m.folders = append(m.folders, Folder{path, times[i]})
	}
	return m, nil
}

// readColumns reads the columns one after the other, and checks each value against what was read
// before.
func (m *Manifest) readColumns(file *parquet.File) error {
	ids := int64(0)
	err := readInts(file, "id", 0, func(id int64) error {
		if id != ids {
			return fmt.Errorf("row %d has the id %d: ids must be 0 to N-1 in order", ids, id)
		}
		ids++
		return nil
	})
	if err != nil {
		return err
	}
	if ids == 0 {
		return errors.New("holds no sample")
	}
	if err := m.readPaths(file); err != nil {
		return err
	}
	if err := m.readExtents(file); err != nil {
		return err
	}
	err = readInts(file, "label", 0, func(label int64) error {
		if label >= int64(len(m.classes)) {
			return fmt.Errorf("label %d is not one of the %d classes", label, len(m.classes))
		}
		m.labels.wide = append(m.labels.wide, uint32(label))
		return nil
	})
	if err != nil {
		return err
	}
	err = readInts(file, "mtime", math.MinInt64, func(modTime int64) error {
		m.modTimes.wide = append(m.modTimes.wide, modTime)
		return nil
	})
	if err != nil {
		return err
	}
	return m.readSharded(file)
}

// readExtents reads sizes and offsets; a column of zero offsets is not kept. If there is no column
// of formats, samples of a manifest with offsets are parts of files.
func (m *Manifest) readExtents(file *parquet.File) error {
	err := readInts(file, "size", 0, func(size int64) error {
		m.sizes.wide = append(m.sizes.wide, size)
		return nil
	})
	if err != nil {
		return err
	}
	row := 0
	return readInts(file, "offset", 0, func(offset int64) error {
		if offset > math.MaxInt64-RecordCRCBytes-m.sizes.at(row) {
			return fmt.Errorf("offset %d is too large", offset)
		}
		if offset != 0 && m.offsets.absent() {
			m.addFormats()
			for i := range m.formats {
				m.formats[i] = FormatPart
			}
		}
		if offset != 0 {
			m.offsets.wide[row] = offset
		}
		row++
		return nil
	})
}

// readPaths splits the paths into folders and names. Neighbours mostly share their folder.
func (m *Manifest) readPaths(file *parquet.File) error {
	rows := make(map[string]uint32, len(m.folders))
	for i, in := range m.folders {
		rows[in.Path] = uint32(i)
	}
	last, known := uint32(0), false
	return readColumn(file, "path", isText, func(v parquet.Value) error {
		dir, name := []byte(nil), v.ByteArray()
		if cut := bytes.LastIndexByte(name, '/'); cut >= 0 {
			dir, name = name[:cut], name[cut+1:]
		}
		if !known || m.folders[last].Path != string(dir) {
			if last, known = rows[string(dir)]; !known {
				return fmt.Errorf("folder %q is missing from its list of folders", dir)
			}
		}
		if err := CheckName(name); err != nil {
			return err
		}
		if err := checkLimits(0, int64(len(m.names))+int64(len(name))); err != nil {
			return err
		}
		m.inFolder.wide = append(m.inFolder.wide, last)
		m.names = append(m.names, name...)
		m.nameEnds = append(m.nameEnds, uint32(len(m.names)))
		return nil
	})
}

var errMembers = errors.New("the columns of the members do not agree")

// readSharded reads the columns that a manifest of whole files does not have: formats, checksums
// and members.
func (m *Manifest) readSharded(file *parquet.File) error {
	has := func(path ...string) bool { _, found := file.Schema().Lookup(path...); return found }
	if has("format") {
		if err := m.readFormats(file); err != nil {
			return err
		}
	}
	if has("xxh3") {
		if err := m.readChecksums(file); err != nil {
			return err
		}
	}
	if has("members", "list", "element", "kind") {
		return m.readMembers(file)
	}
	return nil
}

// readFormats reads the formats; the columns of offsets and formats are not kept if all samples are
// whole files.
func (m *Manifest) readFormats(file *parquet.File) error {
	row, other := 0, false
	read := make([]Format, 0, m.Len())
	err := readColumn(file, "format", isText, func(v parquet.Value) error {
		format, known := formatOf(string(v.ByteArray()))
		if !known {
			return fmt.Errorf("unknown format %q", v.ByteArray())
		}
		if format == FormatFile && m.Offset(draw.SampleID(row)) != 0 {
			return fmt.Errorf("a sample that is a whole file has the offset %d",
				m.Offset(draw.SampleID(row)))
		}
		read, other = append(read, format), other || format != FormatFile
		row++
		return nil
	})
	if err != nil || !other {
		return err
	}
	m.addFormats()
	m.formats = read
	return nil
}

// readChecksums reads the checksums; a column of zeros is not kept.
func (m *Manifest) readChecksums(file *parquet.File) error {
	sums, known := make([]uint64, 0, m.Len()), false
	err := readColumn(file, "xxh3", isInteger, func(v parquet.Value) error {
		if v.Kind() != parquet.Int64 {
			return fmt.Errorf("a checksum is of type %s", v.Kind())
		}
		sums, known = append(sums, v.Uint64()), known || v.Uint64() != 0
		return nil
	})
	if err == nil && known {
		m.checksums = sums
	}
	return err
}

// readMembers reads the three columns of the members, and checks that they are consistent.
func (m *Manifest) readMembers(file *parquet.File) error {
	t := &m.members
	t.ends = make([]uint32, 0, m.Len())
	err := readList(file, isText, func(v parquet.Value) error {
		t.kind.wide = append(t.kind.wide, t.kindNumber(string(v.ByteArray())))
		return nil
	}, func() error {
		t.ends = append(t.ends, uint32(t.kind.len()))
		return nil
	}, "members", "list", "element", "kind")
	if err != nil {
		return err
	}
	for name, column := range map[string]*[]int64{"offset": &t.offsets.wide, "size": &t.sizes.wide} {
		row := 0
		err := readList(file, isInteger, func(v parquet.Value) error {
			if v.Kind() != parquet.Int64 || len(*column) == t.kind.len() {
				return errMembers
			}
			*column = append(*column, v.Int64())
			return nil
		}, func() error {
			if len(*column) != int(t.ends[row]) {
				return errMembers
			}
			row++
			return nil
		}, "members", "list", "element", name)
		if err != nil {
			return err
		}
	}
	t.numbers = nil
	if t.kind.len() == 0 {
		*t = memberTable{}
	}
	for i := range t.ends {
		if err := t.check(i, m.sizes.at(i)); err != nil {
			return err
		}
	}
	return nil
}
