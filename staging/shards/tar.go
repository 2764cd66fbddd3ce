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
// that dot. Members with the same key are one sample, wherever they are; samples come in the order
// of their first members. As in WebDataset, members whose base name has no dot or begins with one,
// names such as __x__, and anything but regular files are left out. If the .cls members hold
// numbers, these are the samples' labels.
//
// Errors, whose text follows the file's name: it is truncated (or lacks its end mark), damaged, has
// a sparse member, a sample with two members of one kind, or a class number for only some of its
// samples.
//
// Source: WebDataset, tariterators.py, base_plus_ext, tar_file_iterator and group_by_keys.
// Differs: group_by_keys groups only neighbours.
func Tar(in io.ReaderAt, sizeBytes int64) (*Contents, error) {
	w := newWindow(in, sizeBytes)
	archive := tar.NewReader(w)
	g := grouping{samples: make(map[string]uint32), kinds: make(map[string]uint32)}
	next := int64(0) // where the next header begins
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) && w.pos > next { // it has read an end mark
			return g.contents()
		}
		if err != nil {
			return nil, tarError(err, next, sizeBytes)
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

func tarError(err error, at, sizeBytes int64) error {
	if _, ok := errors.AsType[*readError](err); ok {
		return err
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return truncated("its next header or end mark", at, at+blockBytes, sizeBytes)
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
	dot := strings.IndexByte(path[base:], '.')
	isMeta := base == 0 && strings.HasPrefix(path, "__") && strings.HasSuffix(path, "__")
	if dot <= 0 || isMeta {
		return "", "", false
	}
	return path[:base+dot], LowerASCII(path[base+dot+1:]), true
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
	samples map[string]uint32 // by key
	keys    []string          // by sample
	classes []int32           // by sample: the number in its .cls member, or noClass
	kinds   map[string]uint32
	names   []string // by kind
	members []grouped
}

type grouped struct {
	Member
	sample uint32
}

// noClass is the class number of a sample that has none.
const noClass = -1

// add adds the member whose data start at w's position.
func (g *grouping) add(path string, place Range, w *window) error {
	key, kind, ok := splitName(path)
	if !ok {
		return nil
	}
	sample, known := g.samples[key]
	if !known {
		sample = uint32(len(g.keys))
		key = strings.Clone(key)
		g.samples[key], g.keys, g.classes = sample, append(g.keys, key), append(g.classes, noClass)
	}
	number, known := g.kinds[kind]
	if !known {
		number = uint32(len(g.names))
		kind = strings.Clone(kind)
		g.kinds[kind], g.names = number, append(g.names, kind)
	}
	if uint64(len(g.members)) > 1<<31 {
		return errors.New("has more than 2147483648 members")
	}
	g.members = append(g.members, grouped{Member{place, number}, sample})
	if kind != "cls" {
		return nil
	}
	class, err := classNumber(w, place.Size)
	g.classes[sample] = class
	return err
}

// contents sorts the members by sample.
func (g *grouping) contents() (*Contents, error) {
	slices.SortStableFunc(g.members, func(a, b grouped) int { return int(a.sample) - int(b.sample) })
	c := &Contents{
		Kinds: g.names, Samples: make([]Range, len(g.keys)),
		Ends: make([]uint32, len(g.keys)),
	}
	c.Members = make([]Member, 0, len(g.members))
	for _, m := range g.members {
		s := &c.Samples[m.sample]
		first := uint32(0)
		if m.sample > 0 {
			first = c.Ends[m.sample-1]
		}
		for _, other := range c.Members[first:] {
			if other.Kind == m.Kind {
				return nil, fmt.Errorf("has two members %q of the sample %q", g.names[m.Kind], g.keys[m.sample])
			}
		}
		if uint32(len(c.Members)) == first {
			s.Offset = m.Offset
		}
		s.Size += m.Size
		c.Members = append(c.Members, m.Member)
		c.Ends[m.sample] = uint32(len(c.Members))
	}
	return c, g.label(c)
}

// label uses the class numbers as labels if all samples have one.
func (g *grouping) label(c *Contents) error {
	without := slices.Index(g.classes, noClass)
	switch {
	case without < 0 && len(g.classes) > 0:
		c.Labels = make([]uint32, len(g.classes))
		for i, class := range g.classes {
			c.Labels[i] = uint32(class)
		}
	case slices.ContainsFunc(g.classes, func(class int32) bool { return class != noClass }):
		return fmt.Errorf("has no class number in a .cls member of the sample %q, though others have one",
			g.keys[without])
	}
	return nil
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
