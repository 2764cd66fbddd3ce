package rank

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"rankpool/slurm"
	"rankpool/staging/posix"
)

// autoScratch, as the folder of --tier, stands for the node's scratch folder, whose name may differ
// between nodes.
const autoScratch = "auto"

// findScratch returns the folder of this node that is meant to hold data of the job, and the rule
// that chose it.
func findScratch() (dir, rule string, err error) {
	return slurm.Scratch(os.Getenv, localDisk)
}

// File systems that are not a local disk of the node: memory, or storage shared by all nodes.
//
// Source: Linux, uapi/linux/magic.h.
var notLocal = map[int64]string{
	unix.TMPFS_MAGIC:      "memory (tmpfs)",
	unix.RAMFS_MAGIC:      "memory (ramfs)",
	unix.NFS_SUPER_MAGIC:  "shared storage (NFS)",
	unix.CEPH_SUPER_MAGIC: "shared storage (Ceph)",
	unix.SMB2_SUPER_MAGIC: "shared storage (SMB)",
	unix.CIFS_SUPER_MAGIC: "shared storage (CIFS)",
	posix.LustreMagic:     "shared storage (Lustre)",
	posix.BeeGFSMagic:     "shared storage (BeeGFS)",
	posix.GPFSMagic:       "shared storage (GPFS)",
}

// localDisk returns nil for a folder on a disk of this node that this process may write to.
func localDisk(dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return Pathless(err)
	} else if !info.IsDir() {
		return unix.ENOTDIR
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if what, found := notLocal[st.Type]; found {
		return errors.New("it is " + what)
	}
	return nil
}
