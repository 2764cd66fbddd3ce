package dataset

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler/draw"
)

// A Manifest is the index of a data set: for each sample its file, its place in the file, its size,
// its label and its modification time.
//
// It holds dense columns and no pointer per sample: 28 bytes and the file's name; 9 more if any
// sample is part of a file, 8 if there are checksums, and, if there are members, 4 and another 20
// per member. Opened from a sample index (OpenIndex) it is smaller: 18 bytes and the name are
// common. Sizes and offsets are in bytes, modification times in nanoseconds since 1970. Names are
// the file system's bytes, in any encoding. A Manifest is immutable, so any number of goroutines
// may read it. Every method that takes an id panics if the id is not in [0, Len()).
//
// The order of the samples is ImageFolder's: classes by name; within a class, folders by path, and
// within a folder, files by name; names in Python's order (CompareNames).
//
// Source: torchvision, datasets/folder.py, find_classes and make_dataset.
// Differs: all regular files count, not only images; hidden files and folders (".…") do not count;
// a class folder without samples keeps its label.
type Manifest struct {
	root    string
	classes []string
	folders []Folder

	sizes    column[int64]
	modTimes column[int64]
	labels   column[uint32]
	inFolder column[uint32]
	nameEnds []uint32 // name i is names[nameEnds[i-1]:nameEnds[i]]
	names    []byte
	// the number of the name of row i, if there are pieces, which share their files; absent: i
	named column[uint32]

	offsets   column[int64] // absent, like formats, if every sample is a whole file
	formats   []Format      // likewise
	checksums []uint64      // nil if there are none; 0: unknown
	members   memberTable
	pieces    *Pieces // nil: each row is a sample

	leavesOut bool // some class folder has hidden entries, dangling links or special files
	// class folders have other files, none with the extension of a sample or an image
	otherKinds bool

	known *Identity // from a sample index; nil: it is computed
}

// A Folder is one row of the folder table: every folder that was visited, even without files,
// because a change of its modification time shows that the manifest is out of date.
type Folder struct {
	Path    string // relative to the root; "" is the root
	ModTime int64  // in nanoseconds since 1970
}

// Len returns N, the number of samples.
func (m *Manifest) Len() int { return m.sizes.len() }

// Root returns the absolute path of the folder that the samples' paths are relative to.
func (m *Manifest) Root() string { return m.root }

// Classes returns the names of the classes in the order of their labels. A data set without class
// folders has the one class "". The caller must not change the slice.
func (m *Manifest) Classes() []string { return m.classes }

// Folders returns the folder table, which the caller must not change.
func (m *Manifest) Folders() []Folder { return m.folders }

// Path returns the absolute path of the file that holds sample id.
func (m *Manifest) Path(id draw.SampleID) string {
	if m.root == "/" {
		return "/" + m.RelPath(id)
	}
	return m.root + "/" + m.RelPath(id)
}

// RelPath returns the path of the file that holds sample id, relative to the root.
func (m *Manifest) RelPath(id draw.SampleID) string {
	name := m.name(id)
	if in := m.folders[m.inFolder.at(int(id))].Path; in != "" {
		return in + "/" + string(name)
	}
	return string(name)
}

// Size returns the size of sample id in bytes.
func (m *Manifest) Size(id draw.SampleID) int64 { return m.sizes.at(int(id)) }

// Offset returns where in its file sample id starts, in bytes.
func (m *Manifest) Offset(id draw.SampleID) int64 {
	if m.offsets.absent() {
		return 0
	}
	return m.offsets.at(int(id))
}

// Format returns how sample id is stored in its file.
func (m *Manifest) Format(id draw.SampleID) Format {
	if m.formats == nil {
		return FormatFile
	}
	return m.formats[id]
}

// Checksum returns the XXH3 hash (64 bits, seed 0) of the bytes of sample id, and whether it is
// known.
func (m *Manifest) Checksum(id draw.SampleID) (uint64, bool) {
	if m.checksums == nil {
		return 0, false
	}
	sum := m.checksums[id]
	return sum, sum != 0
}

// ChecksumOf returns what Manifest.Checksum returns for a sample with these bytes: their XXH3 hash,
// 64 bits, seed 0.
//
// Source: xxHash, doc/xxhash_spec.md, "XXH3 algorithm overview".
func ChecksumOf(sample []byte) uint64 { return xxh3.Hash(sample) }

// HasChecksums reports whether any sample has a checksum.
func (m *Manifest) HasChecksums() bool {
	return slices.ContainsFunc(m.checksums, func(sum uint64) bool { return sum != 0 })
}

// Label returns the label of sample id: its index in Classes.
func (m *Manifest) Label(id draw.SampleID) int { return int(m.labels.at(int(id))) }

// ModTime returns the modification time of the file that holds sample id, in nanoseconds since
// 1970.
func (m *Manifest) ModTime(id draw.SampleID) int64 { return m.modTimes.at(int(id)) }

// TotalBytes returns the sum of all samples' sizes.
func (m *Manifest) TotalBytes() int64 {
	var total int64
	for i := range m.Len() {
		total += m.sizes.at(i)
	}
	return total
}

// mostBytes is more than storage has, and so little that memory for a data set can be computed.
const mostBytes = 1 << 56

// CheckBytes returns an error if the samples cannot have so many bytes: a size in a manifest is
// wrong, or a sparse file's.
func (m *Manifest) CheckBytes() error {
	left := int64(mostBytes)
	for i := range m.Len() {
		if left -= m.sizes.at(i); left < 0 {
			return fmt.Errorf("staging: the samples of %s, up to sample %d, which has %d bytes, have "+
				"more than %d bytes", m.root, i, m.sizes.at(i), int64(mostBytes))
		}
	}
	return nil
}

// WithRoot returns a manifest of the same samples under another root, an absolute path. It shares
// all columns.
func (m *Manifest) WithRoot(root string) *Manifest {
	moved := *m
	moved.root = root
	return &moved
}

// WithChecksums returns a manifest of the same samples with the XXH3 hash of each, 0 if unknown;
// nil removes all checksums. It shares all columns, and sums, which the caller must not change
// afterwards. It panics if len(sums) is not the number of samples.
func (m *Manifest) WithChecksums(sums []uint64) *Manifest {
	if sums != nil && len(sums) != m.Len() {
		panic(fmt.Sprintf("staging: %d checksums for %d samples", len(sums), m.Len()))
	}
	summed := *m
	summed.checksums, summed.known = sums, nil
	return &summed
}

func (m *Manifest) name(id draw.SampleID) []byte {
	if !m.named.absent() {
		id = draw.SampleID(m.named.at(int(id)))
	}
	start := uint32(0)
	if id > 0 {
		start = m.nameEnds[id-1]
	}
	return m.names[start:m.nameEnds[id]]
}

// SizeFits reports whether a file of sizeBytes bytes can hold sample id at its place. If the sample
// is a whole file, the sizes must be equal.
func (m *Manifest) SizeFits(id draw.SampleID, sizeBytes int64) bool {
	if m.Format(id) == FormatFile {
		return sizeBytes == m.sizes.at(int(id))
	}
	return sizeBytes >= m.End(id)
}

// End returns where the bytes that sample id needs end in its file.
func (m *Manifest) End(id draw.SampleID) int64 {
	end := m.Offset(id) + m.sizes.at(int(id))
	for i, last := m.members.span(id); i < last; i++ {
		end = max(end, m.members.offsets.at(int(i))+m.members.sizes.at(int(i)))
	}
	return end + int64(m.TailBytes(id))
}

// Bounds returns the range of the file that contains all bytes of sample id.
func (m *Manifest) Bounds(id draw.SampleID) (from, to int64) {
	from = m.Offset(id)
	for i, last := m.members.span(id); i < last; i++ {
		from = min(from, m.members.offsets.at(int(i)))
	}
	return from, m.End(id)
}

// TailBytes returns the size of the checksum that is read after sample id.
func (m *Manifest) TailBytes(id draw.SampleID) int {
	if m.Format(id) == FormatTFRecord {
		return RecordCRCBytes
	}
	return 0
}

// CheckName returns an error if name cannot be the name of a file in a folder, so that no manifest
// leads outside its root.
func CheckName(name []byte) error {
	if len(name) == 0 || string(name) == "." || string(name) == ".." ||
		bytes.IndexByte(name, '/') >= 0 || bytes.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%q is not a file name", string(name))
	}
	return nil
}

// CheckFolder returns an error unless path is "" or a relative path of valid names.
func CheckFolder(path string) error {
	if path == "" {
		return nil
	}
	for name := range strings.SplitSeq(path, "/") {
		if CheckName([]byte(name)) != nil {
			return fmt.Errorf("%q is not a folder below the root", path)
		}
	}
	return nil
}

// checkRoot returns an error if root is not an absolute path.
func checkRoot(root string) error {
	if !filepath.IsAbs(root) || strings.Contains(root, "\x00") {
		return fmt.Errorf("its root %q is not an absolute path", root)
	}
	return nil
}

// ClassOf returns the class of a folder: the first name of its path, "" for the root.
func ClassOf(path string) string {
	class, _, _ := strings.Cut(path, "/")
	return class
}
