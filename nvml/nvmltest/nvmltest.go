// Package nvmltest compiles a library that behaves like NVML, for tests on machines without a GPU.
package nvmltest

import (
	"bytes"
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

//go:embed testdata/fakenvml.c
var source []byte

// GPUs is the number of GPUs in the library; the head of testdata/fakenvml.c describes each.
const GPUs = 4

// header returns the folder of nvml.h, which comes with NVIDIA's own binding.
var header = sync.OnceValues(func() (string, error) {
	command := exec.Command("go", "list", "-find", "-f", "{{.Dir}}",
		"github.com/NVIDIA/go-nvml/pkg/nvml")
	command.Stderr = os.Stderr
	folder, err := command.Output()
	return strings.TrimSpace(string(folder)), err
})

// Without returns the flags of a library that lacks functions, as old drivers do.
func Without(functions ...string) (flags []string) {
	for _, name := range functions {
		flags = append(flags, "-D"+name+"=no_"+name)
	}
	return flags
}

// Build compiles the library with flags for the C compiler (-DNAME=VALUE, see testdata/fakenvml.c,
// or those of Without) and returns its path, which ends in the name that the loader looks for. The
// test fails without a C compiler.
func Build(t testing.TB, flags ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	folder, err := header()
	if err != nil {
		t.Fatalf("go list finds no nvml.h: %v", err)
	}
	command := exec.Command("cc", append(flags, "-shared", "-fPIC", "-std=c11", "-Wall", "-Werror",
		"-I", folder, "-o", path, "-x", "c", "-")...)
	command.Stdin = bytes.NewReader(source)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return path
}

// BuildHanging compiles a library whose nvmlInit_v2 hangs until release is called.
func BuildHanging(t *testing.T) (path string, release func()) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the reader
		if err == nil {
			_, err = f.WriteString("x")
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	return Build(t, `-DHANG="`+fifo+`"`), release
}
