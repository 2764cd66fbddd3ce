package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// direntBytes is how much of a folder one system call reads: about 4,000 entries, where the C
// library's 32 KiB hold 500. On Lustre and BeeGFS a call is at least one request to the metadata
// server.
const direntBytes = 256 << 10

// A dirent is an entry of a folder from the kernel; name ends with a zero byte and points into the
// read buffer.
type dirent struct {
	name []byte
	kind uint8 // unix.DT_…; DT_UNKNOWN if the file system does not report it
}

// text returns a copy of the name without its zero byte.
func (d dirent) text() string { return string(d.name[:len(d.name)-1]) }

// hidden reports whether the entry is not part of a data set: its name starts with a dot, as "."
// and ".." do, or is ManifestName.
func (d dirent) hidden() bool {
	return d.name[0] == '.' || string(d.name[:len(d.name)-1]) == ManifestName
}

// readDirents calls use for every entry of the folder fd that is not hidden, in the order of the
// file system, and returns whether some are hidden.
func readDirents(fd int, buffer []byte, use func(dirent)) (hidden bool, err error) {
	for {
		var n int
		err := posix.Retry(func() (err error) { n, err = unix.ReadDirent(fd, buffer); return err })
		if err != nil || n == 0 {
			return hidden, err
		}
		for rest := buffer[:n]; len(rest) > 0; {
			var entry dirent
			if entry, rest, err = cutDirent(rest); err != nil {
				return hidden, err
			}
			if !entry.hidden() {
				use(entry)
			} else if name := entry.name; string(name) != ".\x00" && string(name) != "..\x00" {
				hidden = true
			}
		}
	}
}

// cutDirent cuts the first entry off the output of getdents64.
//
// Source: Linux, getdents(2), struct linux_dirent64: u64 inode, i64 place of the next, u16 length,
// u8 kind, name, 0. unix.ParseDirent would drop the kind.
func cutDirent(data []byte) (entry dirent, rest []byte, err error) {
	const lengthAt, kindAt, nameAt = 16, 18, 19
	if len(data) > nameAt {
		length := int(binary.NativeEndian.Uint16(data[lengthAt:]))
		if length > nameAt && length <= len(data) {
			name := data[nameAt:length]
			if end := bytes.IndexByte(name, 0); end > 0 {
				return dirent{name[:end+1], data[kindAt]}, data[length:], nil
			}
		}
	}
	return dirent{}, nil, errors.New("the kernel returned a damaged folder entry")
}

// statxMask is all that a scan needs to know of a file. Requesting less saves a parallel file
// system's servers work.
const statxMask = unix.STATX_TYPE | unix.STATX_SIZE | unix.STATX_MTIME

// statx examines the file with the zero-terminated name in the folder fd. unix.Statx would copy the
// name each time.
func statx(fd int, name string, flags int, st *unix.Statx_t) error {
	return posix.Retry(func() error {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.StringData(name))),
			uintptr(flags), statxMask, uintptr(unsafe.Pointer(st)), 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}
