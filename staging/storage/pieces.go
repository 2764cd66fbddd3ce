package storage

import (
	"errors"
	"io"
	"sync"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
)

const (
	// maxGapBytes is the largest gap between two pieces of one request: reading 64 KiB more at 1 GB/s
	// takes 65 µs, less than a round trip to a storage server. The header of a tar shard's member has
	// 512 to 2,048 bytes.
	maxGapBytes = 64 << 10

	// maxVector is how many buffers a request may have; Linux allows 1,024 (IOV_MAX).
	maxVector = 512
)

// A piece is a range of a file and the memory that it is read into.
type piece struct {
	offset int64
	into   []byte
}

func (p piece) end() int64 { return p.offset + int64(len(p.into)) }

// appendPieces appends the pieces that make up sample id: its members, which are adjacent in into,
// and for a TFRecord file the checksum after the data, which goes into tail.
func appendPieces(pieces []piece, m *dataset.Manifest, id draw.SampleID, into []byte,
	tail *[dataset.RecordCRCBytes]byte,
) []piece {
	for offset, size := range m.Ranges(id) {
		pieces = append(pieces, piece{offset, into[:size:size]})
		into = into[size:]
	}
	if m.Format(id) == dataset.FormatTFRecord {
		pieces = append(pieces, piece{m.Offset(id) + m.Size(id), tail[:]})
	}
	return pieces
}

// readPieces reads all pieces, with one request for those that are adjacent in the file except for
// small gaps. It returns how many of their bytes it has read: less than all if the file ends early.
func readPieces(file File, pieces []piece) (got int, err error) {
	for len(pieces) > 0 {
		n := neighbours(pieces)
		more, all, err := readNeighbours(file, pieces[:n])
		got += more
		if err != nil || !all {
			return got, err
		}
		pieces = pieces[n:]
	}
	return got, nil
}

// neighbours returns how many of the first pieces one request may read.
func neighbours(pieces []piece) int {
	n := 1
	for n < len(pieces) && n < maxVector/2 {
		if gap := pieces[n].offset - pieces[n-1].end(); gap < 0 || gap > maxGapBytes {
			break
		}
		n++
	}
	return n
}

// gapBuffers receive the bytes between pieces, which are not used.
var gapBuffers = sync.Pool{New: func() any { return new([maxGapBytes]byte) }}

// readNeighbours reads pieces with small gaps between them. It returns how many of their bytes it
// has read, and whether that is all.
func readNeighbours(file File, pieces []piece) (got int, all bool, err error) {
	scratch := gapBuffers.Get().(*[maxGapBytes]byte)
	defer gapBuffers.Put(scratch)
	buffers := make([][]byte, 0, 2*len(pieces))
	at := pieces[0].offset
	for _, p := range pieces {
		if gap := p.offset - at; gap > 0 {
			buffers = append(buffers, scratch[:gap])
		}
		if len(p.into) > 0 {
			buffers = append(buffers, p.into)
		}
		at = p.end()
	}
	at = pieces[0].offset
	for len(buffers) > 0 {
		n, err := file.ReadVector(buffers, at)
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			break
		}
		if err != nil {
			return 0, false, err
		}
		at += int64(n)
		buffers = after(buffers, n)
	}
	for _, p := range pieces {
		got += int(max(0, min(at, p.end())-p.offset))
	}
	return got, len(buffers) == 0, nil
}

// after returns what is left of buffers after their first n bytes.
func after(buffers [][]byte, n int) [][]byte {
	for len(buffers) > 0 && n >= len(buffers[0]) {
		n -= len(buffers[0])
		buffers = buffers[1:]
	}
	if n > 0 {
		buffers[0] = buffers[0][n:]
	}
	return buffers
}
