package layout

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/pkg/xattr"
	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// A system holds the calls that read layouts, so that tests can replace Lustre and BeeGFS. It is
// safe for concurrent use. Errors are, or wrap, system error numbers, and name the path.
type system interface {
	// getxattr returns an extended attribute of the file at path, following links.
	getxattr(path, name string) ([]byte, error)
	// magic returns the f_type of statfs, 0 if it is not known.
	magic(path string) int64
	// open opens a file or a folder for ioctls, without waiting.
	open(path string) (device, error)
}

// A device is an open file.
type device interface {
	// ioctl makes one request; its argument is read and written in place.
	ioctl(request uint, arg []byte) error
	// Close closes the file.
	Close()
}

// systemCalls is the file system of this machine.
type systemCalls struct{}

func (systemCalls) getxattr(path, name string) ([]byte, error) { return xattr.Get(path, name) }

func (systemCalls) magic(path string) int64 {
	var st unix.Statfs_t
	if err := posix.Retry(func() error { return unix.Statfs(path, &st) }); err != nil {
		return 0
	}
	return int64(st.Type) //nolint:unconvert // int64 on amd64 and arm64, narrower elsewhere
}

func (systemCalls) open(path string) (device, error) {
	// With O_NONBLOCK the BeeGFS client does not wait for the content of a stub, and a pipe does not
	// block.
	fd, err := posix.Open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return descriptor(fd), nil
}

type descriptor int

func (d descriptor) ioctl(request uint, arg []byte) error {
	return posix.Retry(func() error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d), uintptr(request),
			uintptr(unsafe.Pointer(unsafe.SliceData(arg))))
		runtime.KeepAlive(arg)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

func (d descriptor) Close() { _ = unix.Close(int(d)) } // it was only queried; nothing can be lost

// saysNothing reports whether err means that a file system, its attributes or its driver has no
// layouts.
func saysNothing(err error) bool {
	return slices.ContainsFunc([]unix.Errno{
		unix.ENODATA, unix.EOPNOTSUPP, unix.ENOTTY, unix.ENOSYS, unix.EINVAL, unix.EPERM,
	}, func(number unix.Errno) bool { return errors.Is(err, number) })
}
