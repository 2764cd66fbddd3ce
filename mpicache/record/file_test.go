package record

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFiles checks what becomes of a file that exists.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "recording")
	lives := func(session string, cut int64) int {
		b := begin()
		b.Session = session
		r, err := Create(path, b, quiet())
		if err != nil {
			t.Fatal(err)
		}
		drive(t, testSetup("lru", "torch"), r.Tape(0, testSetup("lru", "torch")), nil)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		result, err := Replay(f)
		if err != nil || result.Difference != nil {
			t.Fatalf("%+v, %v", result, err)
		}
		info, err := f.Stat()
		if err = errors.Join(err, os.Truncate(path, info.Size()-cut)); err != nil {
			t.Fatal(err)
		}
		return len(result.Lives)
	}
	steps := []struct {
		session string
		cut     int64 // bytes that are lost afterwards
		want    int
	}{{"a", 0, 1}, {"a", 0, 2}, {"b", 0, 1}, {"b", 3, 2}, {"b", 0, 2}, {"c", 100000, 1}}
	for i, s := range steps {
		if i == len(steps)-1 {
			s.cut = 0
		}
		if got := lives(s.session, s.cut); got != s.want {
			t.Errorf("step %d: %d lives, want %d", i, got, s.want)
		}
	}
	if err := os.WriteFile(path, []byte("import torch, and many other things"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, begin(), quiet()); err == nil ||
		!strings.Contains(err.Error(), "there is something else in it") {
		t.Errorf("somebody's file is written over: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil ||
		!strings.HasPrefix(string(text), "import torch") {
		t.Errorf("somebody's file is %q, %v", text, err)
	}
	if got := Path("x", 0) + Path("x", 12); got != "xx.12" {
		t.Errorf("paths %s", got)
	}
}

// FuzzFile replays files that no rank wrote.
func FuzzFile(f *testing.F) {
	f.Add(recorded(f, testSetup("lru", "torch"), nil, nil))
	f.Fuzz(func(_ *testing.T, file []byte) {
		_, _ = replay(bytes.NewReader(file), 1000) // it must end, and not panic
	})
}
