package stage

import (
	"io"

	"github.com/zeebo/xxh3"
)

// sumBytes is how much hashFile reads at a time.
const sumBytes = 256 << 10

// sumFile reads a file of size bytes back and returns its checksum.
func sumFile(file File, size int64) (uint64, error) {
	h := xxh3.New()
	err := hashFile(file, size, h)
	return h.Sum64(), err
}

// hashFile reads a file of size bytes back into a hasher; holes are not read.
func hashFile(file File, size int64, h io.Writer) error {
	info, err := file.Info()
	if err != nil {
		return err
	}
	done := int64(0)
	buf := make([]byte, min(size, sumBytes))
	read := func(start, end int64) error {
		hashZeros(h, start-done)
		for done = start; done < end; {
			piece := buf[:min(end-done, int64(len(buf)))]
			if err := readAll(file, piece, done); err != nil {
				return err
			}
			_, _ = h.Write(piece) // a hasher returns no error
			done += int64(len(piece))
		}
		return nil
	}
	if info.Blocks < size {
		err = extents(file.NextData, size, read)
	} else {
		err = read(0, size)
	}
	hashZeros(h, size-done)
	return err
}

// pieceSums hashes a file as a whole, and in pieces of cutBytes.
type pieceSums struct {
	cutBytes int64
	whole    *xxh3.Hasher
	piece    *xxh3.Hasher
	done     int64 // bytes of the piece
	sums     []uint64
}

func newPieceSums(cutBytes int64) *pieceSums {
	return &pieceSums{cutBytes: cutBytes, whole: xxh3.New(), piece: xxh3.New()}
}

// Write adds the next bytes of the file.
func (s *pieceSums) Write(p []byte) (int, error) {
	_, _ = s.whole.Write(p) // a hasher returns no error
	for rest := p; len(rest) > 0; {
		n := min(int64(len(rest)), s.cutBytes-s.done)
		_, _ = s.piece.Write(rest[:n]) // a hasher returns no error
		rest, s.done = rest[n:], s.done+n
		if s.done == s.cutBytes {
			s.end()
		}
	}
	return len(p), nil
}

// end ends a piece, unless it is empty.
func (s *pieceSums) end() {
	if s.done > 0 {
		s.sums, s.done = append(s.sums, s.piece.Sum64()), 0
		s.piece.Reset()
	}
}
