//go:build !mpi

package mpicache_test

import (
	"strings"
	"testing"

	"rankpool/mpicache"
)

// TestNoMPI has a build without MPI: its error names the fix.
func TestNoMPI(t *testing.T) {
	_, err := mpicache.NewMPI()
	if err == nil || !strings.Contains(err.Error(), "-tags mpi") {
		t.Errorf("NewMPI without MPI: %v", err)
	}
	if lib, flavour := mpicache.MPILibrary(), mpicache.MPIFlavour(); lib != "" || flavour != "" {
		t.Errorf("a build without MPI has library %q, flavour %q", lib, flavour)
	}
}
