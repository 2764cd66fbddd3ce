package shards

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// blockBytes is the unit of a tar file: headers and data start at its multiples.
const blockBytes = 512

// maxClassBytes is the maximum length of the text of a class number, including white space.
const maxClassBytes = 16

// Tar finds the samples of a tar file of sizeBytes bytes: ustar, pax and GNU headers.
//
// A member's key is its path up to the first dot of its base name, and its kind is what follows
// that dot. Neighbours with the same key are one sample. As in WebDataset, members whose base name
// has no dot or begins with one, names such as __x__, and anything but regular files are left out;
// but a name that begins with a dot, in a folder without one, is a kind of the folder's sample. If
// all samples have a .cls member with a number, these are their labels.
//
// Errors, whose text follows the file's name: it is truncated (or lacks its end mark), damaged, has
// a sparse member, or a sample with two members of one kind.
//
// Source: WebDataset, tariterators.py, base_plus_ext, tar_file_iterator and group_by_keys.
func Tar(in io.ReaderAt, sizeBytes int64) (*Contents, error) {
	w := newWindow(in, sizeBytes)
	archive := tar.NewReader(w)
	g := grouping{kinds: make(map[string]uint32)}
	next := int64(0) // where the next header begins
	var path string  // of the next member, as a large header has it
	for {
		header, err := archive.Next()
		if errors.Is(err, tar.ErrFieldTooLong) {
			if path, err = passLarge(w, next); err == nil {
				archive, next = tar.NewReader(w), w.pos
				continue
			}
		}
		if errors.Is(err, io.EOF) && w.pos > next { // it has read an end mark
			g.label()
			return &g.found, nil
		}
		if err != nil {
			return nil, tarError(err, next, sizeBytes)
		}
		if path != "" {
			header.Name, path = path, ""
		}
		if isSparse(header) {
			return nil, fmt.Errorf("has the sparse member %q, which cannot be read in place; write it "+
				"without --sparse", header.Name)
		}
		at := w.pos
		if isHeaderOnly(header.Typeflag) {
			next = at
			continue
		}
		if header.Size > sizeBytes-at {
			return nil, truncated(fmt.Sprintf("its member %q", header.Name), next, at+header.Size, sizeBytes)
		}
		next = at + (header.Size+blockBytes-1)/blockBytes*blockBytes
		if header.Typeflag == tar.TypeReg || header.Typeflag == tar.TypeCont {
			if err := g.add(header.Name, Range{at, header.Size}, w); err != nil {
				return nil, err
			}
		}
	}
}

// passLarge moves w from the pax header at byte at, which has more bytes than archive/tar reads, to
// the header that follows. Of its records it returns the next member's path, "" if there is none;
// comments and extended attributes are passed by. A size, or a mark of sparse files, is an error.
func passLarge(w *window, at int64) (path string, err error) {
	block := make([]byte, blockBytes)
	if err := w.readAt(block, at); err != nil {
		return "", err
	}
	size, err := strconv.ParseInt(strings.Trim(string(block[124:136]), " \x00"), 8, 64)
	if err != nil || size < 0 || block[156] != tar.TypeXHeader {
		return "", tar.ErrFieldTooLong
	}
	end := w.pos + size
	for w.pos < end {
		text := make([]byte, min(windowBytes, end-w.pos))
		if err := w.peek(text); err != nil {
			return "", err
		}
		digits, record, _ := strings.Cut(string(text), " ") // "length key=value\n"
		length, err := strconv.ParseInt(digits, 10, 64)
		key, _, named := strings.Cut(record, "=")
		begin := int64(len(digits) + len(" path="))
		switch {
		case err != nil || !named || length <= 0 || length > end-w.pos,
			key == "size", strings.HasPrefix(key, "GNU.sparse."),
			key == "path" && (length <= begin || length > int64(len(text))):
			return "", tar.ErrFieldTooLong
		case key == "path":
			path = string(text[begin : length-1])
		}
		w.pos += length
	}
	w.pos = at + blockBytes + (size+blockBytes-1)/blockBytes*blockBytes
	return path, nil
}

func tarError(err error, at, sizeBytes int64) error {
	if _, ok := errors.AsType[*readError](err); ok {
		return err
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return truncated("its next header or end mark", at, at+blockBytes, sizeBytes)
	case errors.Is(err, tar.ErrFieldTooLong):
		return fmt.Errorf("has a header of more than 1 MiB at byte %d, which cannot be read: write it "+
			"without comments and extended attributes of that size", at)
	default:
		return fmt.Errorf("is damaged, or is not a tar file: the header at byte %d is invalid (%w)", at,
			err)
	}
}

// isHeaderOnly reports whether a member of this type has no data, whatever size its header has.
func isHeaderOnly(kind byte) bool {
	return slices.Contains([]byte{
		tar.TypeLink, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeDir, tar.TypeFifo,
		tar.TypeXGlobalHeader,
	}, kind)
}

func isSparse(header *tar.Header) bool {
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return header.Typeflag == tar.TypeGNUSparse
}

// splitName splits a member's path into the key of its sample and its kind; ok is false if it
// belongs to no sample.
func splitName(path string) (key, kind string, ok bool) {
	base := strings.LastIndexByte(path, '/') + 1
	dot := base + strings.IndexByte(path[base:], '.')
	first, _, below := strings.Cut(path, "/")
	if dot < base || isMeta(first, below) {
		return "", "", false
	}
	if dot == base {
		folder := path[:max(0, base-1)]
		if base == 0 || strings.Contains(folder[strings.LastIndexByte(folder, '/')+1:], ".") {
			return "", "", false
		}
	}
	return path[:dot], LowerASCII(path[dot+1:]), true
}

// isMeta reports whether a path describes the shard: its first part is __x__.
func isMeta(first string, below bool) bool {
	least := len("____")
	if !below { // of such a name the underlines may be the same ones
		least = len("__")
	}
	return len(first) >= least && strings.HasPrefix(first, "__") && strings.HasSuffix(first, "__")
}

// LowerASCII returns s with A to Z in lower case, and all other bytes unchanged.
func LowerASCII(s string) string {
	lower := []byte(s)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower)
}

// A grouping collects the members of a tar file.
type grouping struct {
	found   Contents
	keys    []string          // by sample
	classes []int32           // by sample: the number in its .cls member, or noClass
	kinds   map[string]uint32 // indexes into found.Kinds
	first   int               // of the last sample's members
}

// noClass is the class number of a sample that has none.
const noClass = -1

// add adds the member whose data start at w's position.
func (g *grouping) add(path string, place Range, w *window) error {
	key, kind, ok := splitName(path)
	if !ok {
		return nil
	}
	c := &g.found
	last := len(c.Samples) - 1
	if last < 0 || g.keys[last] != key {
		last, g.first = last+1, len(c.Members)
		g.keys, g.classes = append(g.keys, strings.Clone(key)), append(g.classes, noClass)
		c.Samples, c.Ends = append(c.Samples, Range{Offset: place.Offset}), append(c.Ends, 0)
	}
	number, known := g.kinds[kind]
	if !known {
		number = uint32(len(c.Kinds))
		kind = strings.Clone(kind)
		g.kinds[kind], c.Kinds = number, append(c.Kinds, kind)
	}
	if uint64(len(c.Members)) > 1<<31 {
		return errors.New("has more than 2147483648 members")
	}
	for _, other := range c.Members[g.first:] {
		if other.Kind == number {
			return fmt.Errorf("has two members %q of the sample %q", kind, key)
		}
	}
	c.Members = append(c.Members, Member{place, number})
	c.Ends[last] = uint32(len(c.Members))
	c.Samples[last].Size += place.Size
	if kind != "cls" {
		return nil
	}
	class, err := classNumber(w, place.Size)
	g.classes[last] = class
	return err
}

// label uses the class numbers as labels if all samples have one.
func (g *grouping) label() {
	without := slices.Index(g.classes, noClass)
	switch {
	case without < 0 && len(g.classes) > 0:
		g.found.Labels = make([]uint32, len(g.classes))
		for i, class := range g.classes {
			g.found.Labels[i] = uint32(class)
		}
	case slices.ContainsFunc(g.classes, func(class int32) bool { return class != noClass }):
		g.found.Unlabelled = g.keys[without]
	}
}

// classNumber returns the number in a "cls" member of size bytes, whose data start at w's position;
// noClass if it is not a number.
func classNumber(w *window, size int64) (int32, error) {
	if size > maxClassBytes {
		return noClass, nil
	}
	text := make([]byte, size)
	if err := w.peek(text); err != nil {
		return noClass, tarError(err, w.pos, w.size)
	}
	if number, ok := ClassNumber(text); ok {
		return int32(number), nil
	}
	return noClass, nil
}

// ClassNumber returns the number, in [0, MaxClasses), that is the text of a "cls" member, or false
// if the text is something else.
func ClassNumber(text []byte) (int, bool) {
	if len(text) > maxClassBytes {
		return 0, false
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	return int(number), err == nil && number < MaxClasses
}
