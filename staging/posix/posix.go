// Package posix holds what all code that makes system calls on files shares.
package posix

import (
	"errors"

	"golang.org/x/sys/unix"
)

// The types of parallel file systems, as statfs returns them.
//
// Source: Lustre, lustre_user.h, LL_SUPER_MAGIC; BeeGFS, FhgfsOpsSuper.h, BEEGFS_MAGIC; IBM Storage
// Scale, gpfs.h.
const (
	LustreMagic = 0x0BD00BD0
	BeeGFSMagic = 0x19830326
	GPFSMagic   = 0x47504653
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
