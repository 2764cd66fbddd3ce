// Package storage reads samples from storage: a Fetcher reads them in order of need, with as many
// requests at once as increase throughput, within limits on bytes and opened files, and checks what
// it has read.
package storage

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// Storage holds the file operations that a Fetcher needs, so that tests and emulated file systems
// can replace the real one. It is safe for concurrent use.
type Storage interface {
	// Open opens the file at an absolute path for reading.
	Open(path string) (File, error)
}

// A File is an open file. All methods but Close are safe for concurrent use. Errors are, or wrap,
// system error numbers.
type File interface {
	// ReadVector reads into the buffers, none of which is empty, one after the other, starting at
	// offset off, with one request. It may read less than all; at the end of the file it returns 0 and
	// io.EOF.
	ReadVector(buffers [][]byte, off int64) (int, error)
	// Stat returns the file's size in bytes and its modification time in nanoseconds since 1970.
	Stat() (sizeBytes, modTime int64, err error)
	// Forget advises the system that length bytes starting at off will not be read again soon.
	Forget(off, length int64)
	// Close closes the file.
	Close() error
}

// SystemStorage is the file system of this machine.
type SystemStorage struct{}

// Open opens the file at path for reading.
func (SystemStorage) Open(path string) (File, error) {
	// O_NONBLOCK has no effect on regular files; without it a pipe in a sample's place would block
	// forever.
	fd, err := posix.Open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return systemFile(fd), nil
}

type systemFile int

func (f systemFile) ReadVector(buffers [][]byte, off int64) (n int, err error) {
	err = posix.Retry(func() (err error) {
		n, err = unix.Preadv(int(f), buffers, off)
		return err
	})
	switch {
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (f systemFile) Stat() (sizeBytes, modTime int64, err error) {
	var st unix.Stat_t
	if err := posix.Retry(func() error { return unix.Fstat(int(f), &st) }); err != nil {
		return 0, 0, os.NewSyscallError("stat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, 0, fmt.Errorf("not a regular file")
	}
	return st.Size, st.Mtim.Nano(), nil
}

func (f systemFile) Forget(off, length int64) {
	_ = unix.Fadvise(int(f), off, length, unix.FADV_DONTNEED) // advice; its failure changes nothing
}

func (f systemFile) Close() error { return os.NewSyscallError("close", unix.Close(int(f))) }
