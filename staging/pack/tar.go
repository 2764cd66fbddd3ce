package pack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"math"
	"strings"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/shards"
)

const (
	blockBytes = 512            // headers and data of a tar file start at multiples of this
	endBytes   = 2 * blockBytes // of zeros at the end
	// keyDigits is the minimum width of a sample's key: the same for all data sets below 10⁹ samples.
	keyDigits = 9
	// largeBytes is the size from which a pax header is needed. Source: POSIX.1, pax, ustar: 11 octal
	// digits.
	largeBytes = 1 << 33
	// classKind is the extension of the file that holds a sample's label. Source: WebDataset's
	// conventions.
	classKind = "cls"
)

// A file is one file of a sample in a shard.
type file struct {
	kind      string // its extension
	size      int64  // of its data, in bytes
	headBytes int64  // of its header
	added     bool   // it holds the label, and is not a member of the sample
}

// end returns the end of a file that starts at an offset, where the next one starts.
func (f *file) end(at int64) int64 { return f.data(at) + f.size + padding(f.size) }

// data returns where the data of a file start, if the file starts at an offset.
func (f *file) data(at int64) int64 { return at + f.headBytes }

// padding returns how many bytes follow size bytes up to the next block.
func padding(sizeBytes int64) int64 { return -sizeBytes & (blockBytes - 1) }

// files appends the files of the sample at a position of the order to list: its members, and a file
// for its label unless it has one.
//
// Errors: a member that cannot be stored in a tar shard.
func (p *Plan) files(list []file, place int) ([]file, error) {
	id := p.order[place]
	fail := func(format string, args ...any) ([]file, error) {
		return nil, fmt.Errorf("pack: sample %d (%s) %w", id, p.manifest.RelPath(id),
			fmt.Errorf(format, args...))
	}
	if size := p.manifest.Size(id); size > math.MaxInt64/8 {
		return fail("has the impossible size of %d bytes", size)
	}
	first, classed := len(list), false
	for _, member := range p.manifest.Members(id) {
		kind := kind(member)
		if strings.ContainsAny(kind, "/\x00") {
			return fail("has a member of the kind %q, which is not a file extension", kind)
		}
		for _, other := range list[first:] {
			if other.kind == kind {
				return fail("has two members of the kind %q", kind)
			}
		}
		classed = classed || kind == classKind
		list = append(list, file{kind: kind, size: member.Size})
	}
	if p.label && !classed {
		list = append(list, file{kind: classKind, size: int64(len(p.labelText(id))), added: true})
	}
	for i := range list[first:] {
		f := &list[first+i]
		if err := p.measure(f, place); err != nil {
			return fail("cannot be stored in a tar shard: %w", err)
		}
	}
	return list, nil
}

// kind returns the extension of a member in a shard. Tar readers ignore a member without one.
func kind(member dataset.Member) string {
	if member.Kind == "" {
		return "bin"
	}
	return shards.LowerASCII(member.Kind)
}

// labelText returns the content of the label's file.
func (p *Plan) labelText(id draw.SampleID) string { return fmt.Sprint(p.manifest.Label(id)) }

// measure sets the size of a file's header, which depends on its kind, and on its size if that is
// large. NewPlan has seen every kind, so the table no longer changes.
func (p *Plan) measure(f *file, place int) error {
	var known bool
	if f.headBytes, known = p.headers[f.kind]; known && f.size < largeBytes {
		return nil
	}
	head, err := p.header(f, place)
	f.headBytes = int64(len(head))
	if !known && f.size < largeBytes {
		p.headers[f.kind] = f.headBytes
	}
	return err
}

// header returns the header of a file of the sample at a position of the order: ustar, or pax if
// the name or the size needs it. All times are 0, and all owners root.
func (p *Plan) header(f *file, place int) ([]byte, error) {
	var out bytes.Buffer
	err := tar.NewWriter(&out).WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: p.key(place) + "." + f.kind, Size: f.size, Mode: 0o644,
	})
	return out.Bytes(), err
}
