// Package posix holds what all code that makes system calls on files shares.
package posix

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Retry repeats a system call until no signal interrupts it. The Go runtime sends itself signals,
// and user-space and network file systems let them through.
func Retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Open opens the file with a name in the folder at, or at an absolute path, for this process only.
func Open(at int, name string, flags int, mode uint32) (fd int, err error) {
	err = Retry(func() (err error) {
		fd, err = unix.Openat(at, name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// Allocate gives file sizeBytes of space; on a file system that cannot, writes allocate it, and may
// fail.
func Allocate(file *os.File, sizeBytes int64) error {
	err := Retry(func() error { return unix.Fallocate(int(file.Fd()), 0, 0, sizeBytes) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return file.Truncate(sizeBytes)
	}
	return os.NewSyscallError("fallocate", err)
}

// Timespec returns the time that Timespec.Nano counted, in 64 bits that overflow in 2262: a time
// before 1901, which ext4 and XFS do not know, is one after it.
func Timespec(nano int64) unix.Timespec {
	if nano >= math.MinInt32*1e9 {
		return unix.NsecToTimespec(nano)
	}
	return unix.Timespec{Sec: int64(uint64(nano) / 1e9), Nsec: int64(uint64(nano) % 1e9)}
}
