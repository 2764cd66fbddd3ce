// Package shards finds the samples in files that hold many: tar shards as WebDataset writes them,
// TFRecord files, and arrays in NumPy's .npy files. It reads headers only, by offset, so that the
// samples can be read in place later.
package shards

import (
	"errors"
	"fmt"
	"io"
)

// Contents is the samples of one shard in the order in which they lie there.
type Contents struct {
	// of a sample with several members: Offset is the first one's, Size the sum of theirs
	Samples []Range
	Labels  []uint32 // one a sample, in [0, MaxClasses); nil when the shard does not say

	// The members of the samples; Ends is nil when every sample is one range of bytes without a name.
	Kinds   []string // the extensions that occur, in small letters
	Ends    []uint32 // sample i has Members[Ends[i-1]:Ends[i]]
	Members []Member
}

// A Range is bytes of a file: Size bytes from Offset on.
type Range struct{ Offset, Size int64 }

// A Member is one file of a sample; Kind is its place in Contents.Kinds.
type Member struct {
	Range
	Kind uint32
}

// MaxClasses is how many classes the labels of shards may name: far more than any data set has, so
// that a file with other numbers in it is no list of a million classes.
const MaxClasses = 1 << 20

// windowBytes is how much a window reads at a time: one page more than the headers and small
// members between two large members of a tar shard take.
const windowBytes = 8 << 10

// A window reads a file of size bytes by position, through a buffer that holds a little of it. Its
// errors go on after the file's name.
type window struct {
	in     io.ReaderAt
	size   int64
	pos    int64 // where the next Read begins
	start  int64 // where buffer lies in the file
	buffer []byte
}

func newWindow(in io.ReaderAt, sizeBytes int64) *window {
	return &window{in: in, size: sizeBytes, buffer: make([]byte, 0, windowBytes)}
}

// Read reads on from the position.
func (w *window) Read(p []byte) (int, error) {
	if w.pos >= w.size {
		return 0, io.EOF
	}
	if w.pos < w.start || w.pos >= w.start+int64(len(w.buffer)) {
		want := min(int64(cap(w.buffer)), w.size-w.pos)
		n, err := w.in.ReadAt(w.buffer[:want], w.pos)
		w.start, w.buffer = w.pos, w.buffer[:n]
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				return 0, io.EOF // it became shorter since its size was taken
			}
			return 0, &readError{err}
		}
	}
	n := copy(p, w.buffer[w.pos-w.start:])
	w.pos += int64(n)
	return n, nil
}

// Seek moves the position; it may lie behind the end.
func (w *window) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += w.pos
	case io.SeekEnd:
		offset += w.size
	}
	if offset < 0 {
		return 0, errors.New("a position before the file's start")
	}
	w.pos = offset
	return offset, nil
}

// peek reads all of p at the position, and leaves it there.
func (w *window) peek(p []byte) error {
	at := w.pos
	err := w.readAt(p, at)
	w.pos = at
	return err
}

// readAt reads all of p from offset on, and leaves the position behind it.
func (w *window) readAt(p []byte, offset int64) error {
	w.pos = offset
	_, err := io.ReadFull(w, p)
	return err
}

// A readError is a failure of the system, which is told apart from a file that is damaged.
type readError struct{ err error }

func (e *readError) Error() string { return "cannot be read: " + e.err.Error() }

func (e *readError) Unwrap() error { return e.err }

// truncated says that a file of size bytes ends too early: what, which begins at offset, needs
// bytes up to end.
func truncated(what string, offset, end, size int64) error {
	return fmt.Errorf("is truncated: %s at byte %d needs %d bytes of the file, which has %d", what,
		offset, end, size)
}
