package shards

import (
	"errors"
	"fmt"
	"io"
)

// windowBytes is how much a window reads at a time: one page more than the headers and small
// members between two large members of a tar shard.
const windowBytes = 8 << 10

// A window reads a file of size bytes by position, through a small buffer. The text of its errors
// follows the file's name.
type window struct {
	in     io.ReaderAt
	size   int64
	pos    int64 // where the next Read starts
	start  int64 // offset of buffer in the file
	buffer []byte
}

func newWindow(in io.ReaderAt, sizeBytes int64) *window {
	return &window{in: in, size: sizeBytes, buffer: make([]byte, 0, windowBytes)}
}

// Read reads at the position, and advances it.
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
				return 0, io.EOF // the file was truncated after its size was read
			}
			return 0, &readError{err}
		}
	}
	n := copy(p, w.buffer[w.pos-w.start:])
	w.pos += int64(n)
	return n, nil
}

// Seek sets the position; it may be beyond the end.
func (w *window) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += w.pos
	case io.SeekEnd:
		offset += w.size
	}
	if offset < 0 {
		return 0, errors.New("a position before the start of the file")
	}
	w.pos = offset
	return offset, nil
}

// peek fills p from the position, and does not advance it.
func (w *window) peek(p []byte) error {
	at := w.pos
	err := w.readAt(p, at)
	w.pos = at
	return err
}

// readAt fills p from offset on, and sets the position after it.
func (w *window) readAt(p []byte, offset int64) error {
	w.pos = offset
	_, err := io.ReadFull(w, p)
	return err
}

// A readError is a failure of the system, as opposed to a damaged file.
type readError struct{ err error }

func (e *readError) Error() string { return "cannot be read: " + e.err.Error() }

func (e *readError) Unwrap() error { return e.err }

// truncated returns the error for a file of size bytes that ends too early: what, which starts at
// offset, needs bytes up to end.
func truncated(what string, offset, end, size int64) error {
	return fmt.Errorf("is truncated: %s at byte %d needs %d bytes of the file, which has %d", what,
		offset, end, size)
}
