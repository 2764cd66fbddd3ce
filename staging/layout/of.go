package layout

import (
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
