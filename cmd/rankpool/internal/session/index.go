package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"rankpool/staging/dataset"
)

// Indexes are the indexes of a run's data sets, as its launcher found them when the run began,
// whatever happens to the files or to a manifest afterwards. The launcher writes them into the
// session folder for the ranks of its machine, which then do not scan the data themselves, and
// passes the identities of the data sets to all ranks. It keeps the files open, so that it can
// restore them if the folder is cleared.
type Indexes struct {
	Dir        string
	files      []*os.File
	Identities []string // NAME=DIGEST
}

// IndexPath returns the file in the session folder that holds the sample index of a run's data set
// i.
func IndexPath(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("index-%d", i)) }

// Keep adds the next data set. Without a folder only its identity is kept.
func (x *Indexes) Keep(name string, m *dataset.Manifest) error {
	x.Identities = append(x.Identities, name+"="+m.Identity().Digest.String())
	if x.Dir == "" {
		return nil
	}
	path := IndexPath(x.Dir, len(x.files))
	if err := dataset.WriteIndex(path, m); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err == nil {
		x.files = append(x.files, file)
	}
	return err
}

// PutBack restores the session folder and the indexes that are missing from it.
func (x *Indexes) PutBack() error {
	for i, file := range x.files {
		path := IndexPath(x.Dir, i)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			continue // it exists, or the ranks will report the problem
		}
		if err := os.MkdirAll(x.Dir, 0o700); err != nil {
			return err
		}
		if err := copyFile(path, file); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies file to path, atomically.
func copyFile(path string, file *os.File) error {
	to, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithStaticPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { _ = to.Cleanup() }() // after an error, which is being returned
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(to, file); err != nil {
		return err
	}
	return to.CloseAtomicallyReplace()
}

// Close closes the files.
func (x *Indexes) Close() {
	for _, file := range x.files {
		_ = file.Close() // it was read
	}
}

// RefusedName is the file in the session folder in which rank 0 writes why no rank can serve this
// run any longer.
const RefusedName = "refused"

// Refusal returns the reason that rank 0 wrote to RefusedName, or "".
func Refusal(sessionDir string) string {
	why, _ := os.ReadFile(filepath.Join(sessionDir, RefusedName))
	return string(why)
}
