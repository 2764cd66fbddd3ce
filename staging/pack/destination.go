package pack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"rankpool/staging/index"
	"rankpool/staging/posix"
)

// cannotWrite returns the error that ends packing.
func cannotWrite(dest string, err error) error { return posix.CannotWrite("pack", dest, err) }

// An output is a file that is being written.
type output interface {
	io.Writer
	Name() string
	Chmod(mode fs.FileMode) error
	Close() error
}

// createTemp creates a file in the folder of the one with this name, under a name that begins with
// a dot, so that it is not a sample.
func createTemp(dir, name string) (output, error) { return os.CreateTemp(dir, "."+name+".*") }

// isTemp reports whether a name is that of a temporary, from createTemp or for the manifest, that a
// killed run left.
func isTemp(name string) bool {
	shard, _ := path.Match(".pack-*.tar.*", name) // the patterns are valid
	return shard || strings.HasPrefix(name, "."+index.ManifestName+".")
}

// prepare checks that the folder dest holds nothing but a pack, and removes what a killed run left.
// The caller holds the journal's lock; begun reports whether there was a journal.
func prepare(dest string, begun bool) error {
	entries, err := os.ReadDir(dest)
	if err != nil {
		return cannotWrite(dest, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case begun && isTemp(name):
			if err := remove(dest, name); err != nil {
				return err
			}
		case !begun && !strings.HasPrefix(name, "."):
			return fmt.Errorf("pack: %s holds %q, and is not an unfinished pack: name a new folder", dest,
				name)
		}
	}
	return nil
}

// remove removes a file of the folder dest, if there is one with this name.
func remove(dest, name string) error {
	err := os.Remove(filepath.Join(dest, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cannotWrite(dest, err)
	}
	return nil
}
