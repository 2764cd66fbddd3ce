package copier

import (
	"io"
	"io/fs"

	"rankpool/staging/layout"
)

// FileSystem is the calls that staging makes, at both ends, so that tests and emulated file systems
// can stand in for the real one.
//
// Paths are absolute, bytes as the file system has them; nothing follows a symbolic link in a
// path's last name, except Stat. Errors are, or wrap, system error numbers. It is safe for
// concurrent use.
type FileSystem interface {
	// Lstat looks at a name, Stat at what it leads to.
	Lstat(path string) (Info, error)
	Stat(path string) (Info, error)
	// ReadNames returns the names in a folder, in any order, and all of them or an error.
	ReadNames(path string) ([]string, error)
	// Readlink returns the text of a symbolic link.
	Readlink(path string) (string, error)
	// Open opens a file for reading, Follow the same where the last name may be a link.
	Open(path string) (File, error)
	Follow(path string) (File, error)
	// Create makes a file that is not there yet, for reading and writing, for this user only. Append
	// opens or makes one to write at its end.
	Create(path string) (File, error)
	Append(path string) (File, error)
	// Mkdir makes a folder for this user only.
	Mkdir(path string) error
	// Link gives a file another name; Symlink makes a link with that text.
	Link(old, path string) error
	Symlink(text, path string) error
	// Rename moves a name, over a name that is no folder.
	Rename(old, path string) error
	// Remove removes a name, or an empty folder.
	Remove(path string) error
	// Lock locks a file for whoever holds what it returns, until that is closed or the process ends.
	// The error is unix.EWOULDBLOCK where another holds it.
	Lock(path string) (io.Closer, error)
	// Chmod and Chtime change a name's permission bits, and its modification time in nanoseconds since
	// 1970.
	Chmod(path string, mode fs.FileMode) error
	Chtime(path string, modTime int64) error
	// Attribute returns an extended attribute; an error where there is none.
	Attribute(path, name string) ([]byte, error)
	// Layouts returns what tells the layout of a file below root, nil where its file system has none
	// to tell.
	Layouts(root string) func(path string) (layout.Layout, error)
	// FreeBytes returns how many bytes a plain user may still write below path.
	FreeBytes(path string) (int64, error)
	// SyncAll makes durable what was written to the file system of path.
	SyncAll(path string) error
}

// A File is an open file. Its methods may be called by many goroutines, as those of os.File.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	// Write writes at the end of a file that Append has opened.
	Write(p []byte) (int, error)
	Info() (Info, error)
	// NextData returns the first stretch [start, end) of data at or after off, and found = false when
	// there is none.
	NextData(off int64) (start, end int64, found bool, err error)
	Truncate(size int64) error
	SetAttribute(name string, value []byte) error
	Chmod(mode fs.FileMode) error
	Chtime(modTime int64) error
	Sync() error
	// Forget tells the system that the file's pages will not be read again soon.
	Forget()
	Close() error
}

// Info is what the file system says of a name.
type Info struct {
	Kind    Kind
	Mode    fs.FileMode // permission bits, and setuid, setgid and sticky as fs has them
	Size    int64       // bytes
	Blocks  int64       // bytes that are allocated; less than Size for a sparse file
	ModTime int64       // nanoseconds since 1970
	Dev     uint64
	Inode   uint64
	Links   uint64 // names of this inode
}

// Kind is what a name stands for.
type Kind uint8

// The kinds. Other is what cannot be staged: sockets, pipes, devices.
const (
	Regular Kind = iota
	Folder
	Symlink
	HardLink // another name of an item of the plan
	Other
)
