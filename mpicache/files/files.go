// Package files reads and writes files of a rank's folder, which is in memory and outlives the
// rank.
package files

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Write replaces a file of a rank's folder, at once or not at all.
func Write(path string, data []byte) error { return Replace(path, slices.Values([][]byte{data})) }

// Read is os.ReadFile for a file of a rank's folder, or a state file: it returns an error if
// something else is in its place, such as a FIFO, which may never end.
func Read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // else a FIFO waits for a writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("mpicache: %s is not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// flushBytes is how much of a file is written before the kernel is told to send it to the disk.
// Sending everything at the end would occupy processors for milliseconds.
const flushBytes = 1 << 20

// Replace replaces path atomically by a file that is on disk when it returns, or leaves it
// unchanged.
func Replace(path string, data iter.Seq[[]byte]) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".state-")
	if err != nil {
		return fmt.Errorf("mpicache: %w", err)
	}
	written, flushed := int64(0), int64(0)
	for piece := range data {
		if _, err = f.Write(piece); err != nil {
			break
		}
		if written += int64(len(piece)); written-flushed >= flushBytes {
			// only a hint, which not all file systems support
			_ = unix.SyncFileRange(int(f.Fd()), flushed, written-flushed, unix.SYNC_FILE_RANGE_WRITE)
			flushed = written
		}
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("mpicache: %w", err), os.Remove(f.Name()))
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync() // some file systems cannot
		dir.Close()
	}
	return nil
}
