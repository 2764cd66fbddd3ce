package dataset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	"rankpool/scheduler/draw"
)

// Pieces say which samples a manifest's rows make up, where training draws something else than the
// rows. Then a row is a piece: a range of bytes that the cache holds and moves. A sample is made of
// windows of neighbouring pieces, and samples share pieces.
//
// A sample that is one window takes about 5 bytes. Otherwise a sample takes 4, and each of its
// windows 5.
type Pieces struct {
	Samples int
	Block   int    // of so many neighbouring pieces one rank is the owner
	Note    string // JSON: what the client needs to decode samples
	Heads   []Head

	first, count column[uint32] // of each window
	ends         []uint32       // sample i has the windows ends[i-1] to ends[i]; nil: window i
}

// A Head has the bytes of a file that a library needs besides a sample's pieces, such as the
// superblock and the B-trees of an HDF5 file: as many ranges as there are Offsets.
type Head struct {
	Path    string // relative to the root
	Size    int64  // of the file
	ModTime int64
	Ranges  []Range
	Packed  []byte // the bytes of all ranges, compressed by zlib
}

// A Range is a range of bytes of a file.
type Range struct{ Offset, Size int64 }

// mostBlock bounds how many neighbouring pieces have one owner.
const mostBlock = 1 << 16

// Pieces returns what samples are made of; nil if each row of the manifest is a sample.
func (m *Manifest) Pieces() *Pieces { return m.pieces }

// Samples returns how many samples training can draw.
func (m *Manifest) Samples() int {
	if m.pieces == nil {
		return m.Len()
	}
	return m.pieces.Samples
}

// Block returns of how many neighbouring rows one rank is the owner.
func (m *Manifest) Block() int {
	if m.pieces == nil {
		return 1
	}
	return m.pieces.Block
}

// Windows yields the windows of a sample: the first piece, and how many.
func (p *Pieces) Windows(sample draw.SampleID) iter.Seq2[draw.SampleID, int] {
	first, last := int(sample), int(sample)+1
	if p.ends != nil {
		first, last = 0, int(p.ends[sample])
		if sample > 0 {
			first = int(p.ends[sample-1])
		}
	}
	return func(yield func(draw.SampleID, int) bool) {
		for i := first; i < last; i++ {
			if !yield(draw.SampleID(p.first.at(i)), int(p.count.at(i))) {
				return
			}
		}
	}
}

// A Window is count neighbouring pieces.
type Window struct{ First, Count uint32 }

// Add appends a sample.
func (p *Pieces) Add(windows ...Window) {
	if len(windows) != 1 && p.ends == nil {
		p.ends = make([]uint32, p.Samples)
		for i := range p.ends {
			p.ends[i] = uint32(i + 1)
		}
	}
	for _, w := range windows {
		p.first.wide, p.count.wide = append(p.first.wide, w.First), append(p.count.wide, w.Count)
	}
	p.Samples++
	if p.ends != nil {
		p.ends = append(p.ends, uint32(p.first.len()))
	}
}

// check returns an error unless the samples can be made of so many rows.
func (p *Pieces) check(rows int) error {
	if p.Samples == 0 || p.Samples > math.MaxUint32 {
		return fmt.Errorf("there are %d samples made of pieces", p.Samples)
	}
	if p.Block < 1 || p.Block > mostBlock {
		return fmt.Errorf("a block cannot have %d pieces", p.Block)
	}
	for i := range p.first.len() {
		if n := uint64(p.count.at(i)); n == 0 || uint64(p.first.at(i))+n > uint64(rows) {
			return fmt.Errorf("there is a window of %d pieces from piece %d on, and there are %d pieces",
				n, p.first.at(i), rows)
		}
	}
	return nil
}

// encode returns the pieces as they are in an index and in a manifest file: the numbers of samples
// and windows, the block, and 1 if there are ends (u64 each); the columns first, count and ends;
// the note, the number of heads (u32), and for each its path, size and time (u64), the number of
// its ranges (u32), the ranges, and the compressed bytes. It is padded to 8 bytes.
func (p *Pieces) encode() []byte {
	var b bytes.Buffer
	hasEnds := uint64(0)
	columns := []indexColumn{plain(&p.first), plain(&p.count)}
	if p.ends != nil {
		hasEnds = 1
		columns = append(columns, fixed[uint32](p.ends))
	}
	_ = binary.Write(&b, binary.LittleEndian, // to a buffer, nothing can fail
		[]uint64{uint64(p.Samples), uint64(p.first.len()), uint64(p.Block), hasEnds})
	for _, column := range columns {
		_ = column.write(&b)
	}
	text := appendText(b.Bytes(), p.Note)
	text = binary.LittleEndian.AppendUint32(text, uint32(len(p.Heads)))
	for _, h := range p.Heads {
		text = appendText(text, h.Path)
		text = binary.LittleEndian.AppendUint64(text, uint64(h.Size))
		text = binary.LittleEndian.AppendUint64(text, uint64(h.ModTime))
		text = binary.LittleEndian.AppendUint32(text, uint32(len(h.Ranges)))
		for _, r := range h.Ranges {
			text = binary.LittleEndian.AppendUint64(text, uint64(r.Offset))
			text = binary.LittleEndian.AppendUint64(text, uint64(r.Size))
		}
		text = appendText(text, string(h.Packed))
	}
	return append(text, make([]byte, align8(uint64(len(text)))-uint64(len(text)))...)
}

// identity returns what two data sets with the same samples have in common.
func (p *Pieces) identity() []byte {
	same := *p
	same.Heads = slices.Clone(p.Heads)
	for i := range same.Heads {
		same.Heads[i].ModTime, same.Heads[i].Packed = 0, nil
	}
	return same.encode()
}

// decodePieces reads what encode has returned. It panics if r ends early: what it reads has a
// checksum.
func decodePieces(r *indexReader) *Pieces {
	samples, windows := r.long(), r.long()
	p := &Pieces{Samples: int(samples), Block: int(r.long())}
	hasEnds := r.long() == 1
	p.first.read(r, windows)
	p.count.read(r, windows)
	if hasEnds {
		readFixed(r, &p.ends, samples)
	}
	p.Note = string(r.next(r.number()))
	p.Heads = make([]Head, r.number())
	for i := range p.Heads {
		h := &p.Heads[i]
		h.Path = string(r.next(r.number()))
		h.Size, h.ModTime = int64(r.long()), int64(r.long())
		h.Ranges = make([]Range, r.number())
		for j := range h.Ranges {
			h.Ranges[j] = Range{int64(r.long()), int64(r.long())}
		}
		h.Packed = r.next(r.number())
	}
	r.at = align8(r.at)
	return p
}
