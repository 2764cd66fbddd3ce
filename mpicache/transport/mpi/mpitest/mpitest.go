// Package mpitest compiles a library that behaves like MPI in a world of one, for tests of what no
// MPI of this machine has: the standard ABI of MPI 5, and errors.
package mpitest

import (
	"bytes"
	_ "embed"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/fakempi.c
var source []byte

// Names are the names that libraries have, by their ABI as testdata/fakempi.c calls it.
var Names = map[string]string{
	"OPEN_MPI": "libmpi.so.40",
	"MPICH":    "libmpich.so.12",
	"STANDARD": "libmpi_abi.so.1",
	"DRAFT":    "libmpi_abi.so.0", // of the standard
	"UNKNOWN":  "libmpi.so.1",
}

// Build compiles the library with an ABI and returns its path. A process may load several. The test
// fails without a C compiler.
func Build(t testing.TB, abi string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), Names[abi])
	command := exec.Command("cc", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-std=gnu11", "-Wall",
		"-Werror", "-D"+abi, "-o", path, "-x", "c", "-")
	command.Stdin = bytes.NewReader(source)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return path
}
