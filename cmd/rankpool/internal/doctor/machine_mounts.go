package doctor

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// A mount is a type of file system by its number.
type mount struct {
	name  string
	reach Reach
}

// mounts are the usual types for data and scratch.
//
// Source: Linux, include/uapi/linux/magic.h; WekaFS, statfs of its client.
var mounts = map[int64]mount{
	posix.LustreMagic: {"lustre", Shared},
	posix.BeeGFSMagic: {"beegfs", Shared},
	posix.GPFSMagic:   {"gpfs", Shared},
	0x00006969:        {"nfs", Shared},
	0x00C36400:        {"ceph", Shared},
	0x01021994:        {"tmpfs", Local},
	0x0000EF53:        {"ext4", Local},
	0x58465342:        {"xfs", Local},
	0x9123683E:        {"btrfs", Local},
	0x2FC12FC1:        {"zfs", Local},
	0x794C7630:        {"overlayfs", Unknown},
	0x65735546:        {"fuse", Unknown},
}

func (system) FileSystem(path string) (FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FileSystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	number := int64(uint32(st.Type))
	m, known := mounts[number]
	if !known {
		m.name = fmt.Sprintf("file system %#x", number)
	}
	block := cmp.Or(st.Frsize, st.Bsize)
	return FileSystem{
		Type: m.name, Reach: m.reach, Bytes: int64(st.Blocks) * block,
		FreeBytes: int64(st.Bavail) * block,
	}, nil
}
