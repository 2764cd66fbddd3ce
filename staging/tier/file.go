package tier

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// FileSystem creates a disk's file. Tests replace it with a file system that is full, slow or
// broken.
type FileSystem interface {
	// Create creates a file of sizeBytes in a folder. The file disappears when it is closed or this
	// process ends. Create returns an error if the folder is not writable or has less space.
	Create(dir string, sizeBytes int64) (File, error)
}

// A File is a disk's file. It is safe for concurrent use.
type File interface {
	// ReadAt reads len(p) bytes at offset off, or returns an error.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt writes len(p) bytes at offset off, or returns an error.
	WriteAt(p []byte, off int64) (int, error)
	// Forget writes the length bytes at off to the device, and drops them from memory.
	Forget(off, length int64)
	// Close closes the file. Reads and writes in progress may fail.
	Close() error
}

// SystemFileSystem is the file system of this machine.
type SystemFileSystem struct{}

// leftoverPattern matches the names that files have until the name is removed, on file systems that
// cannot create a file without one.
const leftoverPattern = ".rankpool-tier-*"

// Create implements FileSystem.
func (SystemFileSystem) Create(dir string, sizeBytes int64) (File, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if free := int64(st.Bavail) * st.Bsize; free < sizeBytes {
		return nil, fmt.Errorf("%s has %s free, but the tier is to have %s",
			dir, humanize.IBytes(uint64(free)), humanize.IBytes(uint64(sizeBytes)))
	}
	// special characters in a folder's name are quoted
	leftovers, _ := filepath.Glob(filepath.Join(dir, leftoverPattern))
	for _, path := range leftovers {
		_ = os.Remove(path) // another rank may have removed it first
	}
	f, err := createNameless(dir)
	if err != nil {
		return nil, err
	}
	if err := posix.Allocate(f, sizeBytes); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return systemFile{f}, nil
}

func createNameless(dir string) (*os.File, error) {
	if f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp(dir, leftoverPattern)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

type systemFile struct{ *os.File }

func (f systemFile) Forget(off, length int64) {
	conn, err := f.SyscallConn()
	if err == nil {
		_ = conn.Control(func(fd uintptr) { // a closed file has nothing to forget
			_ = unix.Fadvise(int(fd), off, length, unix.FADV_DONTNEED) // advice; its failure changes nothing
		})
	}
}
