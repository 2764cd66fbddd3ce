package staging

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// direntBytes is how much of a folder one system call reads: about 4,000 entries, where the C
// library's 32 KiB hold 500. A call is at least one request to the metadata server on Lustre and
// BeeGFS.
const direntBytes = 256 << 10

// A dirent is one entry of a folder as the kernel gives it; name ends with a zero byte and lies in
// the read buffer.
type dirent struct {
	name []byte
	kind uint8 // unix.DT_…; DT_UNKNOWN where the file system does not say
}

// text returns the name without its zero byte, as a string of its own.
func (d dirent) text() string { return string(d.name[:len(d.name)-1]) }

// hidden reports whether a data set leaves the entry out: its name starts with a dot, as "." and
// ".." do, or is ManifestName.
func (d dirent) hidden() bool {
	return d.name[0] == '.' || string(d.name[:len(d.name)-1]) == ManifestName
}

// readDirents gives every entry of the folder fd that is not hidden to use, in the order of the
// file system.
func readDirents(fd int, buffer []byte, use func(dirent)) error {
	for {
		var n int
		err := posix.Retry(func() (err error) { n, err = unix.ReadDirent(fd, buffer); return err })
		if err != nil || n == 0 {
			return err
		}
		for rest := buffer[:n]; len(rest) > 0; {
			var entry dirent
			if entry, rest, err = cutDirent(rest); err != nil {
				return err
			}
			if !entry.hidden() {
				use(entry)
			}
		}
	}
}

// cutDirent takes the first entry off what getdents64 has read.
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
	return dirent{}, nil, errors.New("the kernel gave a damaged folder entry")
}

// statxMask is all that a scan wants to know of a file. Asking for less spares a parallel file
// system's servers work.
const statxMask = unix.STATX_TYPE | unix.STATX_SIZE | unix.STATX_MTIME

// statx looks at the file whose zero-ended name is name in the folder fd. unix.Statx would copy the
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
