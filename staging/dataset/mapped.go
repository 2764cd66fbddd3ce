package dataset

import (
	"os"

	"golang.org/x/sys/unix"
)

// openFile opens a file for reading; a pipe in its place, which nobody writes to, would block an
// os.Open.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// mapFile maps a file for reading, for the rest of the process's life. An empty file is nil.
func mapFile(path string) ([]byte, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the mapping stays
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	return unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
}
