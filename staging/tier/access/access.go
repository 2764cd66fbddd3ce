// Package access determines who may read a file besides its owner, so that a copy of it is never
// more permissive.
package access

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// ErrNotShared means that a copy is not shared: neither all users nor the members of one group may
// read all of its sources, or a source has an access control list.
var ErrNotShared = errors.New("access: no other user may read all of the files")

// Access is who may read a copy.
type Access struct {
	Mode  uint32 // 0444, or 0440 for the members of Group
	Group int    // -1: any
}

// acls are the extended attributes of access control lists.
//
// Source: Linux, uapi/linux/xattr.h; fs/nfs/nfs4proc.c.
var acls = []string{"system.posix_acl_access", "system.nfs4_acl", "system.richacl"}

// A Checker determines who may read files. It remembers folders, and is not safe for concurrent
// use.
type Checker struct {
	folders map[string][]entry // the folders that lead to a folder, by its path
}

// entry is a file or folder that must let a reader pass.
type entry struct {
	group                int
	everybody, itsMember bool
}

// Of returns who may read all of these files. A reader must pass each folder that leads to a file,
// too. Errors: ErrNotShared, and those of a file that cannot be examined.
func (c *Checker) Of(paths []string) (Access, error) {
	who := Access{Mode: 0o444, Group: -1}
	for _, path := range paths {
		file, dir, err := c.file(path)
		if err != nil {
			return Access{}, err
		}
		folders, err := c.leading(dir)
		if err != nil {
			return Access{}, err
		}
		for _, e := range append([]entry{file}, folders...) {
			if !who.narrow(e) {
				return Access{}, ErrNotShared
			}
		}
	}
	return who, nil
}

// narrow restricts a to those that e lets pass; it returns false if no one passes, or if
// it is unknown who does.
func (a *Access) narrow(e entry) bool {
	if e.everybody {
		return true
	}
	if !e.itsMember || a.Group >= 0 && a.Group != e.group {
		return false
	}
	a.Mode, a.Group = 0o440, e.group
	return true
}

// file examines a file, and returns the folder that it is in after all links.
func (c *Checker) file(path string) (entry, string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return entry{}, "", &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return entry{}, "", err
		}
		path = real
	}
	e, err := look(path, 0o4)
	return e, filepath.Dir(path), err
}

// leading returns dir and the folders above it, after all links.
func (c *Checker) leading(dir string) ([]entry, error) {
	if found, ok := c.folders[dir]; ok {
		return found, nil
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	var all []entry
	for at := real; ; at = filepath.Dir(at) {
		e, err := look(at, 0o1)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
		if at == filepath.Dir(at) {
			break
		}
	}
	if c.folders == nil {
		c.folders = map[string][]entry{}
	}
	c.folders[dir] = all
	return all, nil
}

// look returns whom a file or folder lets pass, by one of the bits of its mode.
func look(path string, bit uint32) (entry, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return entry{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	var in unix.Statfs_t
	if err := unix.Statfs(path, &in); err != nil {
		return entry{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if in.Type == posix.GPFSMagic {
		return entry{}, ErrNotShared // the kernel does not show its lists
	}
	for _, name := range acls {
		if n, err := unix.Getxattr(path, name, nil); err == nil && n > 0 {
			return entry{}, ErrNotShared
		}
	}
	member := st.Mode&(bit<<3) != 0
	// Members of the file's group do not have the rights of everybody.
	return entry{int(st.Gid), member && st.Mode&bit != 0, member}, nil
}
