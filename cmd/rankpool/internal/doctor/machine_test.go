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
	found, err := Run(t.Context(), env, Checks(), nil)
	if err != nil || len(found) < 13 {
		t.Fatal(found, err)
	}
	status := map[string]Status{}
	for _, f := range found {
		status[f.Check] = f.Status
	}
	for check, want := range map[string]Status{
		"cpus": Good, "data": Good, "python": Bad,
	} {
		if status[check] != want {
			t.Errorf("%s is %q, want %q: %+v", check, status[check], want, found)
		}
	}
}

func TestIndexAndSamples(t *testing.T) {
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
	if _, found, err := s.Index(root); found || err != nil {
		t.Error("a folder that was not scanned has a manifest", err)
	}
	m, err := index.Open(t.Context(), root, index.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if path, found, err := s.Index(root); !found || err != nil || path == root {
		t.Error("its cached manifest is not found", path, err)
	}
	file := filepath.Join(t.TempDir(), "m.parquet")
	if err := dataset.WriteParquet(file, m); err != nil {
		t.Fatal(err)
	}
	if path, found, err := s.Index(file); !found || err != nil || path != file {
		t.Error(path, found, err)
	}
	if err := dataset.WriteParquet(filepath.Join(root, index.ManifestName), m); err != nil {
		t.Fatal(err)
	}
	if path, found, err := s.Index(root); !found || err != nil ||
		filepath.Base(path) != index.ManifestName {
		t.Error(path, found, err)
	}
	broken := filepath.Join(t.TempDir(), "broken.parquet")
	if err := os.WriteFile(broken, []byte("no parquet"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found, err := s.Index(broken); found || err == nil {
		t.Error("a broken manifest is taken")
	}
	for _, data := range []string{root, file} {
		for _, n := range []int{1, 4, 6} {
			samples, err := s.Samples(data, n)
			classes, paths := map[string]bool{}, map[string]bool{}
			for _, path := range samples {
				classes[filepath.Dir(path)], paths[path] = true, true
			}
			if err != nil || len(paths) != n || n == 6 && len(classes) < 3 {
				t.Errorf("%d samples of %s: %d files in %d folders, %v", n, data, len(paths), len(classes), err)
			}
		}
	}
	if _, err := s.Samples(filepath.Join(root, "none"), 1); err == nil {
		t.Error("no error for a folder that is not there")
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
	if out, err := s.Output(time.Minute, nil, "sh", "-c", "yes | head -c 3000000"); len(
		out) != maxOutput || err != nil {
		t.Error(len(out), err)
	}
}

// TestProbe checks that Python's probe prints what check "python" reads, with and without modules.
func TestProbe(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rankpool.py": "", "torch/__init__.py": "from . import cuda, version, " +
			"distributed\n__version__ = '9.9'", "torch/version.py": "cuda = None",
		"torch/cuda.py":        "def is_available(): return False",
		"torch/distributed.py": "def is_available(): return True",
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
