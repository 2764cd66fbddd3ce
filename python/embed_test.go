package python

import (
	"io/fs"
	"os"
	"testing"
)

// TestFilesIsTheClient checks that every module of the client is embedded, byte for byte, and
// nothing else.
func TestFilesIsTheClient(t *testing.T) {
	want, err := fs.Glob(os.DirFS("."), "rankpool/*.py")
	if err != nil || len(want) == 0 {
		t.Fatalf("modules in the source tree: %v, %v", want, err)
	}
	var got []string
	err = fs.WalkDir(Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			got = append(got, path)
		}
		return err
	})
	if err != nil || len(got) != len(want) {
		t.Fatalf("embedded %v, %v; the source tree has %v", got, err, want)
	}
	for _, path := range want {
		embedded, err := Files.ReadFile(path)
		source, sourceErr := os.ReadFile(path)
		if err != nil || sourceErr != nil || string(embedded) != string(source) {
			t.Errorf("%s: the embedded file is not the source (%v, %v)", path, err, sourceErr)
		}
	}
}
