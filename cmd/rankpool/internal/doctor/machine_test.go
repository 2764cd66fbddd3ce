package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rankpool/staging/dataset"
	"rankpool/staging/index"
)

// TestSystem runs every check on the machine that runs the test: none may hang or panic, whatever
// it finds.
func TestSystem(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data")
	for i := range 3 {
		dir := filepath.Join(root, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for k := range 40 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(k)), []byte("content"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	env, _ := healthy(t)
	env.Machine, env.Data = NewSystem(), []string{root}
	env.Python = Python{Command: "true"}
	found, err := Run(t.Context(), env, Checks())
	if err != nil || len(found) < 12 {
		t.Fatal(found, err)
	}
	status := map[string]Status{}
	for _, f := range found {
		status[f.Check] = f.Status
	}
	for check, want := range map[string]Status{
		"data": Warning, "python": Bad,
	} {
		if status[check] != want {
			t.Errorf("%s is %q, want %q: %+v", check, status[check], want, found)
		}
	}
}

func TestManifest(t *testing.T) {
	root := t.TempDir()
	for i := range 30 {
		path := filepath.Join(root, fmt.Sprint("c", i%3), fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	s := NewSystem()
	if path, _, err := s.Manifest(root, 4); path != "" || err != nil {
		t.Error("a folder that was not scanned has a manifest", err)
	}
	m, err := index.Open(t.Context(), root, index.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := index.CachedManifest(root, index.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(data, manifest string) {
		t.Helper()
		for _, n := range []int{1, 4, 6} {
			path, files, err := s.Manifest(data, n)
			folders := map[string]bool{}
			for _, file := range files {
				if folders[filepath.Dir(file)] = true; s.Open(file) != nil {
					t.Errorf("%s cannot be opened", file)
				}
			}
			if err != nil || path != manifest || len(files) != n || n == 6 && len(folders) < 3 {
				t.Errorf("%s: %d of %d files in %d folders, %v", path, len(files), n, len(folders), err)
			}
		}
	}
	expect(root, cached)
	file := filepath.Join(t.TempDir(), "m.parquet")
	if err := dataset.WriteParquet(file, m); err != nil {
		t.Fatal(err)
	}
	expect(file, file)
	own := filepath.Join(root, index.ManifestName)
	if err := dataset.WriteParquet(own, m); err != nil {
		t.Fatal(err)
	}
	expect(root, own)
	broken := filepath.Join(t.TempDir(), "broken.parquet")
	if err := os.WriteFile(broken, []byte("no parquet"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{broken, filepath.Join(root, "none")} {
		if path, _, err := s.Manifest(data, 1); path != data || err == nil {
			t.Errorf("%s is taken: %v", path, err)
		}
		if s.Open(filepath.Join(root, "none")) == nil {
			t.Error("no error for a file that is not there")
		}
	}
}

// TestOutput checks that a program that takes too long is killed together with its children, and
// that the error of a program that fails contains the last line of its stderr.
func TestOutput(t *testing.T) {
	s := NewSystem()
	if out, err := s.Output(time.Minute, []string{"WORD=hello"}, "sh", "-c",
		"echo $WORD; echo no >&2"); out != "hello\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := s.Output(time.Minute, nil, "sh", "-c",
		"echo first >&2; echo last >&2; exit 3"); err == nil ||
		!strings.HasSuffix(err.Error(), ": last") {
		t.Error(err)
	}
	if _, err := s.Output(time.Millisecond, nil, "sh", "-c", "sleep 1000 & wait"); err == nil ||
		!strings.Contains(err.Error(), "sh has not ended in 1ms") {
		t.Error(err)
	}
}

// TestProbe checks that Python's probe prints what check "python" reads, with and without modules.
func TestProbe(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rankpool.py": "", "torch/__init__.py": "from . import cuda, version\n" +
			"__version__ = '9.9'", "torch/version.py": "cuda = None",
		"torch/cuda.py": "def is_available(): return False",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PYTHONPATH", "")
	t.Setenv("CUDA_VISIBLE_DEVICES", "") // a machine with GPUs would want a PyTorch with CUDA
	env, _ := healthy(t)
	env.Machine, env.Python.Path = NewSystem(), dir
	found := checkPython(env)
	if len(found) != 1 || found[0].Status != Good ||
		!strings.HasSuffix(found[0].Detail, "PyTorch 9.9, without a GPU; training uses its own client") {
		t.Errorf("%+v", found)
	}
	if err := os.WriteFile(filepath.Join(dir, "torch/__init__.py"),
		[]byte("raise ImportError('libtorch.so')"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rankpool.py"), []byte("print('hello')\nexit(3)"),
		0o600); err != nil {
		t.Fatal(err)
	}
	found = checkPython(env)
	if Worst(found) != Bad || len(found) != 2 ||
		!strings.Contains(found[1].Detail, "ImportError: libtorch.so") {
		t.Errorf("%+v", found)
	}
}
