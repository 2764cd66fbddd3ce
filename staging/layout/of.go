package layout

import (
	"encoding/binary"
	"fmt"

	"rankpool/staging/posix"
)

// Of returns the layout of the regular file at path, following links. On a file system without
// layouts it returns the zero Layout and no error.
//
// Errors: a file that does not exist or may not be accessed; an invalid layout.
func Of(path string) (Layout, error) { return of(systemCalls{}, path, onBeeGFS) }

// of reads a layout. askBeeGFS reports whether it is worth opening the file for the ioctls of
// BeeGFS.
func of(sys system, path string, askBeeGFS func(system, string) (bool, error)) (Layout, error) {
	var l Layout
	value, err := sys.getxattr(path, lovAttribute)
	switch {
	case err == nil:
		if l, err = parseLustre(value); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	case saysNothing(err):
		var ask bool
		if ask, err = askBeeGFS(sys, path); err == nil && ask {
			l, err = readBeeGFS(sys, path)
		}
	}
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
// 32 bits are used, is initially 0.
//
// Source: Lustre, include/uapi/linux/lustre/lustre_user.h, LL_IOC_GETOBDCOUNT; lustre/llite/dir.c,
// ll_dir_ioctl.
const requestTargetCount = 2<<30 | 8<<16 | 'f'<<8 | 168

// targetCount returns the number of OSTs of the Lustre file system of the folder at path, 0 if
// unknown.
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
