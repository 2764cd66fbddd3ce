package keep

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Clean removes the user's copies in dir that were last used before a time, and returns how many
// files and bytes these were. A job that uses them then reads storage instead. It returns an error,
// and removes nothing, unless DIR/UID is the user's own.
func Clean(dir string, before time.Time) (files int, bytes int64, err error) {
	shared, err := openDirectory(unix.AT_FDCWD, dir, 0)
	if err != nil {
		return 0, 0, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(shared) }() // it was only read
	own, _, err := openOwnPart(shared)
	if errors.Is(err, unix.ENOENT) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s/%d: %w", dir, os.Geteuid(), err)
	}
	f := &Folder{fd: own}
	defer func() { _ = f.Close() }() // it was only read
	all, err := f.files()
	for _, one := range all {
		if one.used.Before(before) && unix.Unlinkat(own, one.name, 0) == nil {
			files, bytes = files+1, bytes+one.size
		}
	}
	return files, bytes, err
}
