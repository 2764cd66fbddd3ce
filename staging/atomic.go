package staging

import (
	"bufio"
	"io"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// writeAtomic writes a file by write so that path names either what it named before or the whole
// new file: it writes beside it, syncs, and renames. The folder of path must exist. Everybody may
// read the file.
func writeAtomic(path string, write func(io.Writer) error) error {
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { _ = file.Cleanup() }() // after an error, which is being returned
	buffered := bufio.NewWriterSize(file, 1<<20)
	if err := write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
}
