package layout

import (
	"encoding/binary"
	"fmt"

	"rankpool/staging/posix"
)

// Of returns the layout of the regular file at path; links are followed. On a file system that
// tells none it is the zero Layout, without an error.
//
// Errors: a file that is not there or may not be looked at, and a layout that makes no sense.
func Of(path string) (Layout, error) { return of(systemCalls{}, path, onBeeGFS) }

// of reads a layout. askBeeGFS says whether the ioctls of BeeGFS are worth opening the file for.
func of(sys system, path string, askBeeGFS func(system, string) (bool, error)) (Layout, error) {
	value, err := sys.getxattr(path, lovAttribute)
	if err == nil {
		l, err := parseLustre(value)
		if err != nil {
			return Layout{}, fmt.Errorf("layout: %s: %w", path, err)
		}
		return l, nil
	}
	if !saysNothing(err) {
		return Layout{}, fmt.Errorf("layout: %w", err)
	}
	ask, err := askBeeGFS(sys, path)
	if err != nil {
		return Layout{}, fmt.Errorf("layout: %w", err)
	}
	if !ask {
		return Layout{}, nil
	}
	l, err := readBeeGFS(sys, path)
	if err != nil {
		return Layout{}, fmt.Errorf("layout: %w", err)
	}
	return l, nil
}

func onBeeGFS(sys system, path string) (bool, error) {
	magic, err := sys.magic(path)
	return magic == posix.BeeGFSMagic, err
}

// requestTargetCount asks a Lustre client for the number of OSTs; the argument, a C long of which
// 32 bits are used, is 0 on the way in.
//
// Source: Lustre, include/uapi/linux/lustre/lustre_user.h, LL_IOC_GETOBDCOUNT; lustre/llite/dir.c,
// ll_dir_ioctl.
const requestTargetCount = 2<<30 | 8<<16 | 'f'<<8 | 168

// targetCount returns how many OSTs the Lustre file system of the folder at path has, 0 where that
// is not known.
func targetCount(sys system, folder string) int {
	dir, err := sys.open(folder)
	if err != nil {
		return 0
	}
	defer dir.Close()
	var count [8]byte
	if dir.ioctl(requestTargetCount, count[:]) != nil {
		return 0
	}
	return int(min(binary.NativeEndian.Uint32(count[:]), maxTarget))
}
