package index

import (
	"encoding/binary"
	"errors"
	"slices"

	"rankpool/staging/dataset"
)

// A listing is the content of one folder: its files, sub-folders and dangling links, each sorted by
// name, and the modification time that it had before it was read. A listing is immutable.
type listing struct {
	modTime  int64
	files    []scannedFile
	folders  []subFolder
	dangling []string // links that lead nowhere
}

type scannedFile struct {
	name          string
	size, modTime int64
}

type subFolder struct {
	name string
	link bool // reached by a symbolic link, so it may lead back
}

func (l *listing) sort() {
	slices.SortFunc(l.files,
		func(a, b scannedFile) int { return dataset.CompareNames(a.name, b.name) })
	slices.SortFunc(l.folders,
		func(a, b subFolder) int { return dataset.CompareNames(a.name, b.name) })
	slices.SortFunc(l.dangling, dataset.CompareNames)
}

// append appends the encoded listing to data, for other ranks: varints of its
// modification time, the number of files, for each the length of its name, its size and its
// modification time; the number of sub-folders, for each twice the length of its name, plus 1 for a
// link; the number of dangling links, for each the length of its name; and all names in that order.
func (l *listing) append(data []byte) []byte {
	data = binary.AppendVarint(data, l.modTime)
	data = binary.AppendUvarint(data, uint64(len(l.files)))
	for _, file := range l.files {
		data = binary.AppendUvarint(data, uint64(len(file.name)))
		data = binary.AppendUvarint(data, uint64(file.size))
		data = binary.AppendVarint(data, file.modTime)
	}
	data = binary.AppendUvarint(data, uint64(len(l.folders)))
	for _, sub := range l.folders {
		head := uint64(len(sub.name)) << 1
		if sub.link {
			head |= 1
		}
		data = binary.AppendUvarint(data, head)
	}
	data = binary.AppendUvarint(data, uint64(len(l.dangling)))
	for _, name := range l.dangling {
		data = binary.AppendUvarint(data, uint64(len(name)))
	}
	for _, file := range l.files {
		data = append(data, file.name...)
	}
	for _, sub := range l.folders {
		data = append(data, sub.name...)
	}
	for _, name := range l.dangling {
		data = append(data, name...)
	}
	return data
}

var errListing = errors.New("a folder's listing is damaged")

// parseListing decodes what append wrote.
func parseListing(data []byte) (*listing, error) {
	in := varints{rest: data}
	l := &listing{modTime: in.signed()}
	files := in.count()
	l.files = make([]scannedFile, files)
	lengths := make([]int, files, files+8)
	for i := range l.files {
		lengths[i] = in.count()
		l.files[i].size, l.files[i].modTime = int64(in.unsigned()), in.signed()
		if l.files[i].size < 0 {
			in.bad = true
		}
	}
	l.folders = make([]subFolder, in.count())
	for i := range l.folders {
		head := in.unsigned()
		l.folders[i].link = head&1 != 0
		lengths = append(lengths, int(head>>1))
	}
	l.dangling = make([]string, in.count())
	for range l.dangling {
		lengths = append(lengths, in.count())
	}
	if in.bad {
		return nil, errListing
	}
	names := string(in.rest) // one copy for all names
	for i, length := range lengths {
		if length > len(names) || dataset.CheckName([]byte(names[:length])) != nil {
			return nil, errListing
		}
		switch folder := i - files; {
		case i < files:
			l.files[i].name = names[:length]
		case folder < len(l.folders):
			l.folders[folder].name = names[:length]
		default:
			l.dangling[folder-len(l.folders)] = names[:length]
		}
		names = names[length:]
	}
	if names != "" {
		return nil, errListing
	}
	return l, nil
}

// varints decodes successive numbers; bad reports that one was invalid.
type varints struct {
	rest []byte
	bad  bool
}

func (v *varints) unsigned() uint64 { return number(v, binary.Uvarint) }
func (v *varints) signed() int64    { return number(v, binary.Varint) }

func number[T uint64 | int64](v *varints, decode func([]byte) (T, int)) T {
	n, size := decode(v.rest)
	if size <= 0 {
		v.bad, v.rest = true, nil
		return 0
	}
	v.rest = v.rest[size:]
	return n
}

// count decodes the number of elements that take at least a byte each.
func (v *varints) count() int {
	n := v.unsigned()
	if n > uint64(len(v.rest)) {
		v.bad, v.rest = true, nil
		return 0
	}
	return int(n)
}

// text decodes what appendText wrote.
func (v *varints) text() string {
	n := v.count()
	text := string(v.rest[:n])
	v.rest = v.rest[n:]
	return text
}

// appendText appends a text preceded by its length (varint).
func appendText(data []byte, text string) []byte {
	return append(binary.AppendUvarint(data, uint64(len(text))), text...)
}
