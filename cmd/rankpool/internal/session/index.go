package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"rankpool/staging"
)

// Indexes are those of a run's data sets. They are those that its launcher found when it began, whatever happens to the files, or to a manifest, afterwards. The
// launcher leaves their sample indexes in the session folder, for the ranks of its machine, which do not look for themselves then, and
// tells all ranks their identities. It holds the files open, so that it can put them back when somebody clears the folder.
type Indexes struct {
	Dir        string
	files      []*os.File
	Identities []string // NAME=DIGEST
}

// IndexPath is the file in the session folder that has the sample index of a run's data set i.
func IndexPath(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("index-%d", i)) }

// Keep adds the next data set. Without a folder only its identity is kept.
func (x *Indexes) Keep(name string, m *staging.Manifest) error {
	x.Identities = append(x.Identities, name+"="+m.Identity().Digest.String())
	if x.Dir == "" {
		return nil
	}
	path := IndexPath(x.Dir, len(x.files))
	if err := staging.WriteIndex(path, m); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err == nil {
		x.files = append(x.files, file)
	}
	return err
}

// PutBack makes the session folder and the indexes that are no longer there.
func (x *Indexes) PutBack() error {
	for i, file := range x.files {
		path := IndexPath(x.Dir, i)
		if _, err := os.Stat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
			continue // what is wrong with it the ranks will say
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

// copyFile writes what file holds to path, whole or not at all.
func copyFile(path string, file *os.File) error {
	to, err := os.CreateTemp(filepath.Dir(path), ".index-")
	if err != nil {
		return err
	}
	_, err = file.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(to, file)
	}
	err = errors.Join(err, to.Chmod(0o644), to.Close())
	if err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return nil
}

// Close closes the files.
func (x *Indexes) Close() {
	for _, file := range x.files {
		_ = file.Close() // it was read
	}
}

// RefusedName is the file in the session folder in which rank 0 says why no rank can serve this run any more.
const RefusedName = "refused"

// Refusal returns what rank 0 has said by refuse, "" for nothing.
func Refusal(sessionDir string) string {
	why, _ := os.ReadFile(filepath.Join(sessionDir, RefusedName))
	return string(why)
}
