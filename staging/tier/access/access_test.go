package access

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestOf checks who may read a file in a folder, by the modes and groups of both.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		folder, file   os.FileMode
		folderG, fileG int
		want           Access // no mode: ErrNotShared
	}{
		{0o755, 0o644, 1, 2, Access{0o444, -1}},
		{0o711, 0o644, 1, 2, Access{0o444, -1}},
		{0o755, 0o640, 1, 2, Access{0o440, 2}},
		{0o750, 0o644, 1, 2, Access{0o440, 1}},
		{0o750, 0o640, 2, 2, Access{0o440, 2}},
		{0o750, 0o640, 1, 2, Access{}},
		{0o755, 0o600, 1, 2, Access{}},
		{0o700, 0o644, 1, 2, Access{}},
		{0o745, 0o644, 1, 2, Access{}}, // members of 1 do not pass
		{0o755, 0o604, 1, 2, Access{}},
	} {
		dir := world(t)
		folder := filepath.Join(dir, "folder")
		file := filepath.Join(folder, "file")
		for _, err := range []error{
			os.Mkdir(folder, 0o700), os.WriteFile(file, nil, 0o600), os.Chown(folder, 0, c.folderG),
			os.Chown(file, 0, c.fileG), os.Chmod(file, c.file), os.Chmod(folder, c.folder),
			os.Symlink(file, filepath.Join(dir, "link")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{file, filepath.Join(dir, "link")} {
			got, err := new(Checker).Of([]string{path})
			if got != c.want || (c.want.Mode == 0) != errors.Is(err, ErrNotShared) {
				t.Errorf("%+v: %+v, %v", c, got, err)
			}
		}
	}
}

// world makes a folder that everybody can enter.
func world(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rankpool-access-") //nolint:usetesting // others enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
