package layout

import (
	"fmt"

	"rankpool/staging/posix"
)

// Of returns the layout of the regular file at path, following links. On a file system without
// layouts it returns the zero Layout and no error.
//
// Errors: a file that does not exist or may not be accessed; an invalid layout.
func Of(path string) (Layout, error) {
	sys := systemCalls{}
	return of(sys, path, onBeeGFS(sys, path))
}

// of reads a layout. beegfs says that it is worth opening the file for the ioctls of BeeGFS.
func of(sys system, path string, beegfs bool) (l Layout, err error) {
	value, err := sys.getxattr(path, lovAttribute)
	switch {
	case err == nil:
		if l, err = parseLustre(value); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	case saysNothing(err) && beegfs:
		l, err = readBeeGFS(sys, path)
	case saysNothing(err):
		err = nil
	}
	if err != nil {
		return Layout{}, fmt.Errorf("layout: %w", err)
	}
	return l, nil
}

func onBeeGFS(sys system, path string) bool { return sys.magic(path) == posix.BeeGFSMagic }
