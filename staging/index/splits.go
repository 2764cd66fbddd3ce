package index

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Splits returns the names of the parts of a data set that folder dir contains: "train" first, the
// others sorted. It returns nil if dir has no sub-folder train, has a visible sub-folder other than
// train, val, valid, validation and test, or is not a folder.
//
// Errors: dir cannot be read.
func Splits(dir string) ([]string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	if !info.IsDir() {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	splits := []string{"train"}
	hasTrain := false
	for _, entry := range entries { // sorted by name
		name := entry.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, name)) // follows links
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP): // a link that leads nowhere
		case err != nil:
			return nil, fmt.Errorf("staging: %w", err)
		case !info.IsDir():
		case name == "train":
			hasTrain = true
		case slices.Contains([]string{"val", "valid", "validation", "test"}, name):
			splits = append(splits, name)
		default:
			return nil, nil
		}
	}
	if !hasTrain {
		return nil, nil
	}
	return splits, nil
}
