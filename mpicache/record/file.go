package record

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
)

// A recording is its magic line and chunks: a u32 length, and that many bytes of gzip, which hold a
// gob stream of entries.
const magic = "rankpool recording 3\n"

// magicAnyFormat is the common prefix of recordings of all formats.
const magicAnyFormat = "rankpool recording "

// Path returns the file of a rank for a recording named path: path itself for rank 0, path.r for
// rank r.
func Path(path string, rank int) string {
	if rank == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d", path, rank)
}

// appendChunk appends the gob stream in b as a chunk.
func appendChunk(dst *bytes.Buffer, zip *gzip.Writer, b []byte) {
	at := dst.Len()
	dst.Write(make([]byte, 4))
	zip.Reset(dst)
	_, err := zip.Write(b)
	if err = errors.Join(err, zip.Close()); err != nil {
		panic("record: writing to memory: " + err.Error())
	}
	binary.LittleEndian.PutUint32(dst.Bytes()[at:], uint32(dst.Len()-at-4))
}

// chunks reads a recording's chunks one by one.
type chunks struct {
	r     io.Reader
	at    int64 // where the next chunk begins
	zip   gzip.Reader
	size  [4]byte
	bytes bytes.Buffer // of a chunk as it is in the file
	plain bytes.Buffer
}

// open reads the magic line.
func (c *chunks) open() error {
	line := make([]byte, len(magic))
	n, err := io.ReadFull(c.r, line)
	switch {
	case string(line) == magic:
		c.at = int64(len(magic))
		return nil
	case err != nil && err != io.EOF && err != io.ErrUnexpectedEOF:
		return err
	case bytes.HasPrefix(line[:n], []byte(magicAnyFormat)):
		return fmt.Errorf("it is a recording of another format, %q, and this rankpool reads %q: "+
			"replay it with the one that wrote it", bytes.TrimSpace(line[:n]), magic[:len(magic)-1])
	}
	return errors.New("it is not a recording of rankpool")
}

// next returns the gob stream of the next chunk, valid until the next call: io.EOF at the end,
// io.ErrUnexpectedEOF when the last chunk is cut off, another error when a chunk is damaged or
// cannot be read.
func (c *chunks) next() ([]byte, error) {
	if err := c.skip(); err != nil {
		return nil, err
	}
	err := c.zip.Reset(&c.bytes)
	c.plain.Reset()
	if err == nil {
		_, err = c.plain.ReadFrom(&c.zip)
	}
	if err != nil {
		return nil, fmt.Errorf("the chunk before byte %d is damaged: %w", c.at, noEOF(err))
	}
	return c.plain.Bytes(), nil
}

// skip reads the next chunk without decoding it.
func (c *chunks) skip() error {
	if _, err := io.ReadFull(c.r, c.size[:]); err != nil {
		return err
	}
	size := int64(binary.LittleEndian.Uint32(c.size[:]))
	c.bytes.Reset()
	n, err := io.CopyN(&c.bytes, c.r, size)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err == nil {
		c.at += 4 + n
	}
	return err
}

// noEOF keeps the end of a chunk from being mistaken for the file's.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	return err
}

// openFile opens a rank's file for writing. What an earlier life of the rank wrote in the same
// session stays; what an earlier session wrote does not.
func openFile(path string, begin Begin) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	keep, err := whole(f, begin)
	if err == nil {
		err = f.Truncate(keep)
	}
	if err == nil {
		_, err = f.Seek(keep, io.SeekStart)
	}
	if err == nil && keep == 0 {
		_, err = f.WriteString(magic)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// whole returns how many bytes of f belong to the same rank and session, in whole chunks. It
// returns an error if f contains anything but a recording.
func whole(f *os.File, begin Begin) (int64, error) {
	if info, err := f.Stat(); err != nil || info.Size() == 0 || !info.Mode().IsRegular() {
		return 0, err
	}
	c := chunks{r: f}
	if err := c.open(); err != nil {
		text := make([]byte, len(magicAnyFormat))
		if n, _ := f.ReadAt(text, 0); string(text[:n]) == magicAnyFormat {
			return 0, nil
		}
		return 0, fmt.Errorf("there is something else in it: %w", err)
	}
	stream, err := c.next()
	if err != nil {
		return 0, nil //nolint:nilerr // nothing in it is of use
	}
	var first entry
	if gob.NewDecoder(bytes.NewReader(stream)).Decode(&first) != nil || first.Begin == nil {
		return 0, nil
	}
	if first.Begin.Session != begin.Session || first.Begin.Rank != begin.Rank {
		return 0, nil
	}
	for err == nil {
		err = c.skip()
	}
	return c.at, nil
}
