package keep

import (
	"os"
	"testing"
)

// TestTagsAreWrittenLater checks that a flush writes what an earlier one could not.
func TestTagsAreWrittenLater(t *testing.T) {
	dir := t.TempDir()
	open := func() *tags {
		t.Helper()
		all, err := openTags(dir, "tags", 2*blockTags, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { all.file.Close() })
		return all
	}
	written, id := open(), tagOf([]byte("a sample"))
	file := written.file
	for _, change := range []func(){
		func() { written.setName(0, name{1}) },
		func() { written.set(1, id) },
		func() { written.set(blockTags, id) },
	} {
		change()
		readOnly, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		written.file = readOnly
		if written.flush() == nil {
			t.Error("a file that cannot be written to is written to")
		}
		written.file = file
		_ = readOnly.Close()
	}
	if err := written.flush(); err != nil {
		t.Fatal(err)
	}
	read := open()
	if n, ok := read.name(0); !ok || n != (name{1}) || read.get(1) != id ||
		read.get(blockTags) != id {
		t.Errorf("%v, %v, %v", n, read.get(1), read.get(blockTags))
	}
}
