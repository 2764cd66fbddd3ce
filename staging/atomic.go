package staging

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
)

// writeAtomic writes a file by write so that path names either what it named before or the whole new file: it
// writes beside it, syncs, and renames. The folder of path must exist. Everybody may read the file.
func writeAtomic(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // err is being reported
			_ = os.Remove(file.Name())
		}
	}()
	buffered := bufio.NewWriterSize(file, 1<<20)
	if err := write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
