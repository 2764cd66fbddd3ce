package stage

import (
	"io"
	"io/fs"
)

// FileSystem holds the calls that staging makes, at both ends, so that tests and emulated file
// systems can replace the real one.
//
// Paths are absolute, in the file system's bytes; no call but Stat follows a symbolic link in the
// last component of a path. Errors are, or wrap, system error numbers. It is safe for concurrent
// use.
type FileSystem interface {
	// Lstat describes a name, Stat what it points to.
	Lstat(path string) (Info, error)
	Stat(path string) (Info, error)
	// ReadNames returns all names in a folder, in any order, or an error.
	ReadNames(path string) ([]string, error)
	// Readlink returns the target of a symbolic link.
	Readlink(path string) (string, error)
	// Open opens a file for reading; Follow does the same, and the last component may be a link.
	Open(path string) (File, error)
	Follow(path string) (File, error)
	// Create creates a new file, for reading and writing, for this user only. Append opens or creates
	// one for writing at its end.
	Create(path string) (File, error)
	Append(path string) (File, error)
	// Mkdir creates a folder for this user only.
	Mkdir(path string) error
	// Link creates a hard link to a file; Symlink creates a symbolic link with that target.
	Link(old, path string) error
	Symlink(text, path string) error
	// Rename renames a file, replacing any name that is not a folder.
	Rename(old, path string) error
	// Remove removes a name, or an empty folder.
	Remove(path string) error
	// Lock locks a file until what it returns is closed or the process ends. The error is
	// unix.EWOULDBLOCK if another process holds the lock.
	Lock(path string) (io.Closer, error)
	// Chmod and Chtime change a name's permission bits, and its modification time in nanoseconds since
	// 1970.
	Chmod(path string, mode fs.FileMode) error
	Chtime(path string, modTime int64) error
	// Attribute returns an extended attribute, or an error if there is none.
	Attribute(path, name string) ([]byte, error)
	// FreeBytes returns how many bytes an unprivileged user may still write below path.
	FreeBytes(path string) (int64, error)
	// SyncAll flushes what was written to the file system of path.
	SyncAll(path string) error
}

// A File is an open file. Like those of os.File, its methods may be called by many goroutines.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	// Write appends to a file that Append opened.
	Write(p []byte) (int, error)
	Info() (Info, error)
	// NextData returns the first stretch [start, end) of data at or after off, and found = false if
	// there is none.
	NextData(off int64) (start, end int64, found bool, err error)
	Truncate(size int64) error
	SetAttribute(name string, value []byte) error
	Chmod(mode fs.FileMode) error
	Chtime(modTime int64) error
	Sync() error
	// Forget advises the system that the file's pages will not be read again soon.
	Forget()
	Close() error
}

// Info describes a name in the file system.
type Info struct {
	Kind    Kind
	Mode    fs.FileMode // permission bits, and setuid, setgid and sticky as in package fs
	Size    int64       // bytes
	Blocks  int64       // allocated bytes; less than Size for a sparse file
	ModTime int64       // nanoseconds since 1970
	Dev     uint64
	Inode   uint64
	Links   uint64 // names of this inode
}

// Kind is the type of a file.
type Kind uint8

// The kinds. Items of kind Other cannot be staged: sockets, pipes, devices.
const (
	Regular Kind = iota
	Folder
	Symlink
	HardLink // another name of an item of the plan
	Other
)
