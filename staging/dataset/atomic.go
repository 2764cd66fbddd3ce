package dataset

import (
	"bufio"
	"io"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// writeAtomic writes a file with write so that path names either what it named before or the
// complete new file: it writes a temporary file in the same folder, syncs, and renames. The folder
// must exist. The file is readable by everybody.
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
