package index

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rankpool/staging/dataset"
)

// piecesTitle is the first line of a table of pieces.
const piecesTitle = "rankpool pieces 1"

const (
	maxPiecesLine = 16 << 20
	maxHeadBytes  = 1 << 30 // of one file
	// maxBlock is how many neighbouring pieces have one owner: so few that partitions of a small data
	// set have about as many bytes, so many that few windows lie in two blocks.
	maxBlock, windowsInBlock = 4096, 8
)

// pieceFiles are the extensions of files whose samples are pieces, and arrayFiles those of which
// several are seldom samples themselves; zarrFiles tell a Zarr store from other folders.
var (
	arrayFiles = []string{".h5", ".hdf5", ".nc", ".nc4", ".mrcs"}
	pieceFiles = append([]string{".npy", ".npz", ".mrc", ".json"}, arrayFiles...)
	zarrFiles  = []string{".zgroup", ".zarray", "zarr.json"}
)

// MadeOfPieces reports whether the samples of a file or folder are made of pieces, by its name or,
// of a Zarr store, by those of its files; and of a folder with nothing but .npy files. With
// wholeFiles those of no folder are.
func MadeOfPieces(path string, wholeFiles bool) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil && slices.Contains(pieceFiles, filepath.Ext(path))
	}
	return !wholeFiles && (hasOnlyArrays(path) || slices.ContainsFunc(zarrFiles,
		func(name string) bool {
			_, err := os.Stat(filepath.Join(path, name))
			return err == nil
		}))
}

// hasOnlyArrays reports whether a folder has .npy files, and nothing else that is not hidden.
func hasOnlyArrays(path string) (found bool) {
	folder, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = folder.Close() }() // it was only read
	for {
		names, err := folder.Readdirnames(1)
		switch {
		case err != nil:
			return found && err == io.EOF
		case filepath.Ext(names[0]) == ".npy":
			found = true
		case names[0][0] != '.':
			return false
		}
	}
}

// ReadPieces reads a table of pieces, and returns the manifest of the samples that they make up. It
// reads the heads of the files from storage.
//
// The table is text, which python/rankpool/pieces.py describes and prints.
//
// Errors: a malformed line, by its number; a file that has changed since it was listed.
func ReadPieces(table io.Reader) (*dataset.Manifest, error) {
	t := &pieceTable{
		lines: bufio.NewScanner(table), pieces: &dataset.Pieces{Block: 1},
		checked: map[string]bool{},
	}
	t.lines.Buffer(make([]byte, 0, 64<<10), maxPiecesLine)
	if err := t.open(); t.line == 0 {
		return nil, errors.New("the list of pieces is empty: the command that prints it may have failed")
	} else if err != nil {
		return nil, fmt.Errorf("staging: table of pieces, line %d: %w", t.line, err)
	}
	for t.next() {
		if err := t.add(); err != nil {
			return nil, fmt.Errorf("staging: table of pieces, line %d: %w", t.line, err)
		}
	}
	if err := t.lines.Err(); err != nil {
		return nil, fmt.Errorf("staging: table of pieces: %w", err)
	}
	if err := t.endFile(); err != nil {
		return nil, err
	}
	if t.widest > 1 {
		t.pieces.Block = min(windowsInBlock*t.widest, maxBlock)
	}
	m, err := t.builder.Manifest([]string{""})
	if err != nil {
		return nil, fmt.Errorf("staging: table of pieces: %w", err)
	}
	return m, nil
}

// pieceTable is a table of pieces that is being read.
type pieceTable struct {
	lines   *bufio.Scanner
	line    int
	fields  []string
	root    string
	builder *dataset.Builder
	pieces  *dataset.Pieces
	rows    int
	widest  int             // the largest number of pieces in a window
	file    dataset.Sample  // of the last F
	size    int64           // its size
	heads   []dataset.Range // of the last F
	checked map[string]bool // files that are as they were listed
}

func (t *pieceTable) next() bool {
	if !t.lines.Scan() {
		return false
	}
	t.line++
	t.fields = strings.Split(t.lines.Text(), "\t")
	return true
}

// open reads the title and the note.
func (t *pieceTable) open() error {
	if !t.next() || t.lines.Text() != piecesTitle {
		return fmt.Errorf("it does not begin with %q: \"python3 -m rankpool.pieces\" prints such a table",
			piecesTitle)
	}
	if !t.next() || len(t.fields) != 2 || t.fields[0] != "N" {
		return errors.New(`there must be a note: N, a tab, and a JSON object with "root"`)
	}
	var note struct {
		Root string `json:"root"`
	}
	if err := json.Unmarshal([]byte(t.fields[1]), &note); err != nil {
		return err
	}
	t.root, t.pieces.Note = filepath.Clean(note.Root), t.fields[1]
	t.builder = dataset.NewBuilder(t.root, 0)
	t.builder.Pieces(t.pieces)
	return nil
}

// add handles a line.
func (t *pieceTable) add() error {
	kind, path := t.fields[0], ""
	rest := t.fields[1:]
	if kind == "F" && len(rest) > 0 {
		path, rest = rest[0], rest[1:]
	}
	numbers := make([]int64, len(rest))
	for i, field := range rest {
		var err error
		if numbers[i], err = strconv.ParseInt(field, 10, 64); err != nil || numbers[i] < 0 {
			return fmt.Errorf("%q is not a number of bytes or pieces", field)
		}
	}
	switch n := len(numbers); {
	case kind == "F" && n == 2:
		return t.begin(path, numbers[0], numbers[1])
	case kind == "H" && n == 2 && t.file.Path != "":
		t.heads = append(t.heads, dataset.Range{Offset: numbers[0], Size: numbers[1]})
		return nil
	case kind == "P" && (n == 2 || n == 3) && t.file.Path != "":
		return t.addPieces(append(numbers, 1)[:3])
	case kind == "W" && n == 4:
		return t.windows(numbers)
	case kind == "S" && n%2 == 0:
		windows := make([]dataset.Window, n/2)
		for i := range windows {
			var err error
			if windows[i], err = t.window(numbers[2*i], numbers[2*i+1]); err != nil {
				return err
			}
		}
		t.pieces.Add(windows...)
		return nil
	}
	return fmt.Errorf("%q is not a line of a table of pieces", t.lines.Text())
}

// begin begins a file.
func (t *pieceTable) begin(path string, size, modTime int64) error {
	if err := t.endFile(); err != nil {
		return err
	}
	t.file = dataset.Sample{Path: path, ModTime: modTime}
	t.size = size
	folder, name := filepath.Split(path)
	if err := dataset.CheckFolder(strings.TrimSuffix(folder, "/")); err != nil {
		return err
	}
	return dataset.CheckName([]byte(name))
}

// addPieces adds count pieces of the file, each as large as the first.
func (t *pieceTable) addPieces(at []int64) error {
	offset, size, count := at[0], at[1], at[2]
	if offset > t.size || size > 0 && count > (t.size-offset)/size ||
		count > math.MaxUint32-int64(t.rows) {
		return fmt.Errorf("%s has %d bytes, and not %d pieces of %d bytes from byte %d on", t.file.Path,
			t.size, count, size, offset)
	}
	for i := range count {
		s := t.file
		s.Offset, s.Size, s.Format = offset+i*size, size, dataset.FormatPart
		if s.Offset == 0 && size == t.size {
			s.Format = dataset.FormatFile
		}
		if err := t.builder.Add(s); err != nil {
			return err
		}
	}
	t.rows += int(count)
	return nil
}

func (t *pieceTable) window(first, count int64) (w dataset.Window, err error) {
	if first > math.MaxUint32 || count < 1 || count > math.MaxUint32 {
		return w, fmt.Errorf("a sample cannot have %d pieces from piece %d on", count, first)
	}
	t.widest = max(t.widest, int(count))
	return dataset.Window{First: uint32(first), Count: uint32(count)}, nil
}

// windows adds n samples: of count pieces each, step pieces after one another.
func (t *pieceTable) windows(at []int64) error {
	first, count, step, n := at[0], at[1], at[2], at[3]
	if n > math.MaxUint32 || step > math.MaxUint32 {
		return fmt.Errorf("there cannot be %d samples", n)
	}
	for i := range n {
		w, err := t.window(first+i*step, count)
		if err != nil {
			return err
		}
		t.pieces.Add(w)
	}
	return nil
}

// endFile reads the heads of the file that ends here, and checks that it is still the one that was
// listed.
func (t *pieceTable) endFile() error {
	if t.file.Path == "" || t.checked[t.file.Path] && len(t.heads) == 0 {
		return nil
	}
	t.checked[t.file.Path] = true
	path := filepath.Join(t.root, t.file.Path)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	if info.Size() != t.size || info.ModTime().UnixNano() != t.file.ModTime {
		return fmt.Errorf("staging: %s was changed after its pieces were listed: index it again", path)
	}
	if len(t.heads) == 0 {
		return nil
	}
	var packed bytes.Buffer
	z, total := zlib.NewWriter(&packed), int64(0)
	for _, r := range t.heads {
		if total += r.Size; total > maxHeadBytes {
			return fmt.Errorf("staging: %s needs more than %d bytes besides its samples", path, maxHeadBytes)
		}
		if n, err := io.Copy(z, io.NewSectionReader(file, r.Offset, r.Size)); err != nil {
			return fmt.Errorf("staging: %w", err)
		} else if n < r.Size {
			return fmt.Errorf("staging: %s ends before byte %d", path, r.Offset+r.Size)
		}
	}
	_ = z.Close() // writing to a buffer cannot fail
	t.pieces.Heads = append(t.pieces.Heads, dataset.Head{
		Path: t.file.Path, Size: t.size, ModTime: t.file.ModTime, Ranges: t.heads, Packed: packed.Bytes(),
	})
	t.heads = nil
	return nil
}
