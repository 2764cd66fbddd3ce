package stage

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/pkg/xattr"
	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// System is the file system of this machine.
type System struct{}

// Lstat implements FileSystem.
func (System) Lstat(path string) (Info, error) {
	var st unix.Stat_t
	err := posix.Retry(func() error { return unix.Lstat(path, &st) })
	return infoOf(&st), pathError("lstat", path, err)
}

// Stat implements FileSystem.
func (System) Stat(path string) (Info, error) {
	var st unix.Stat_t
	err := posix.Retry(func() error { return unix.Stat(path, &st) })
	return infoOf(&st), pathError("stat", path, err)
}

// ReadNames implements FileSystem.
func (System) ReadNames(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// Readlink implements FileSystem.
func (System) Readlink(path string) (string, error) { return os.Readlink(path) }

// Open implements FileSystem.
func (System) Open(path string) (File, error) { return openFile(path, os.O_RDONLY|unix.O_NOFOLLOW) }

// Follow implements FileSystem.
func (System) Follow(path string) (File, error) { return openFile(path, os.O_RDONLY) }

// Create implements FileSystem.
func (System) Create(path string) (File, error) {
	return openFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW)
}

// Append implements FileSystem.
func (System) Append(path string) (File, error) {
	return openFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW)
}

// Mkdir implements FileSystem.
func (System) Mkdir(path string) error { return os.Mkdir(path, 0o700) }

// Link implements FileSystem.
func (System) Link(old, path string) error { return os.Link(old, path) }

// Symlink implements FileSystem.
func (System) Symlink(text, path string) error { return os.Symlink(text, path) }

// Rename implements FileSystem.
func (System) Rename(old, path string) error {
	return pathError("rename", path, posix.Retry(func() error { return unix.Rename(old, path) }))
}

// Remove implements FileSystem.
func (System) Remove(path string) error { return os.Remove(path) }

// Lock implements FileSystem.
func (System) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // it was not written to
		return nil, err
	}
	return f, nil
}

// Chmod implements FileSystem.
func (System) Chmod(path string, mode fs.FileMode) error { return os.Chmod(path, mode) }

// Chtime implements FileSystem.
func (System) Chtime(path string, modTime int64) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, posix.Timespec(modTime)}
	return pathError("utimensat", path, posix.Retry(func() error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// Attribute implements FileSystem.
func (System) Attribute(path, name string) ([]byte, error) { return xattr.LGet(path, name) }

// FreeBytes implements FileSystem.
func (System) FreeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	err := posix.Retry(func() error { return unix.Statfs(path, &st) })
	return int64(st.Bavail) * st.Bsize, pathError("statfs", path, err)
}

// SyncAll implements FileSystem.
func (System) SyncAll(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return pathError("syncfs", path, posix.Retry(func() error { return unix.Syncfs(int(dir.Fd())) }))
}

// systemFile is an open file of System.
type systemFile struct{ *os.File }

// openFile opens path; O_NONBLOCK has no effect on regular files, and keeps a pipe in a file's
// place from blocking forever.
func openFile(path string, flags int) (File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	return systemFile{f}, nil
}

func (f systemFile) Info() (Info, error) {
	var st unix.Stat_t
	err := posix.Retry(func() error { return unix.Fstat(int(f.Fd()), &st) })
	return infoOf(&st), pathError("fstat", f.Name(), err)
}

func (f systemFile) NextData(off int64) (start, end int64, found bool, err error) {
	fd := int(f.Fd())
	start, err = unix.Seek(fd, off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // nothing but a hole from here on
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, pathError("lseek", f.Name(), err)
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	return start, end, err == nil, pathError("lseek", f.Name(), err)
}

func (f systemFile) SetAttribute(name string, value []byte) error {
	return xattr.FSet(f.File, name, value)
}

func (f systemFile) Chtime(modTime int64) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, posix.Timespec(modTime)}
	err := posix.Retry(func() error {
		return unix.UtimesNanoAt(int(f.Fd()), "", times, unix.AT_EMPTY_PATH)
	})
	if err != nil { // AT_EMPTY_PATH needs Linux 5.8
		return System{}.Chtime(f.Name(), modTime)
	}
	return nil
}

func (f systemFile) Forget() {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // advice; its failure changes nothing
}

func infoOf(st *unix.Stat_t) Info {
	return Info{
		Kind: kindOf(st.Mode), Mode: modeOf(st.Mode), Size: st.Size, Blocks: st.Blocks * 512,
		ModTime: st.Mtim.Nano(), Dev: st.Dev, Inode: st.Ino,
		Links: uint64(st.Nlink), //nolint:unconvert // 32 bits on arm64
	}
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Regular
	case unix.S_IFDIR:
		return Folder
	case unix.S_IFLNK:
		return Symlink
	}
	return Other
}

func modeOf(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	if mode&unix.S_ISUID != 0 {
		m |= fs.ModeSetuid
	}
	if mode&unix.S_ISGID != 0 {
		m |= fs.ModeSetgid
	}
	if mode&unix.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
