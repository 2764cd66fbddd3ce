package posix

import "golang.org/x/sys/unix"

// The types of parallel file systems, as statfs returns them.
//
// Source: Lustre, lustre_user.h, LL_SUPER_MAGIC; BeeGFS, FhgfsOpsSuper.h, BEEGFS_MAGIC; IBM Storage
// Scale, gpfs.h.
const (
	LustreMagic = 0x0BD00BD0
	BeeGFSMagic = 0x19830326
	GPFSMagic   = 0x47504653
)

// A Reach is which nodes see the files of a file system.
type Reach int

// The reaches.
const (
	Unknown Reach = iota // a FUSE program may do anything
	Disk                 // this node alone
	Memory               // this node alone, as long as it runs
	Shared               // a server, or many, hold the files
)

// A FileSystemType is a type of file system.
type FileSystemType struct {
	Name  string // in the output of mount; "" if it is none of the usual ones
	Reach Reach
}

// TypeOf returns what statfs's number stands for.
func TypeOf(number int64) FileSystemType { return fileSystems[int64(uint32(number))] }

// fileSystems are the usual types for data and scratch.
//
// Source: Linux, include/uapi/linux/magic.h.
var fileSystems = map[int64]FileSystemType{
	LustreMagic:                {"lustre", Shared},
	BeeGFSMagic:                {"beegfs", Shared},
	GPFSMagic:                  {"gpfs", Shared},
	unix.NFS_SUPER_MAGIC:       {"nfs", Shared},
	unix.CEPH_SUPER_MAGIC:      {"ceph", Shared},
	unix.SMB2_SUPER_MAGIC:      {"smb2", Shared},
	unix.CIFS_SUPER_MAGIC:      {"cifs", Shared},
	unix.TMPFS_MAGIC:           {"tmpfs", Memory},
	unix.RAMFS_MAGIC:           {"ramfs", Memory},
	unix.EXT4_SUPER_MAGIC:      {"ext4", Disk},
	unix.XFS_SUPER_MAGIC:       {"xfs", Disk},
	unix.BTRFS_SUPER_MAGIC:     {"btrfs", Disk},
	0x2FC12FC1:                 {"zfs", Disk},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlayfs", Unknown},
	unix.FUSE_SUPER_MAGIC:      {"fuse", Unknown},
}
