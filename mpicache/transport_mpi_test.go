//go:build mpi

package mpicache_test

import (
	"testing"

	"rankpool/mpicache"
	"rankpool/mpicache/transporttest"
)

// TestMPIContract runs the contract with this process as one rank: under mpirun of a group, else of a group of one.
func TestMPIContract(t *testing.T) {
	if mpicache.MPIFlavour() == "" {
		t.Error("the MPI library has no flavour")
	}
	rank, err := mpicache.NewMPI()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mpicache.NewMPI(); err == nil {
		t.Error("MPI was started twice")
	}
	t.Logf("rank %d of %d, %s", rank.Rank(), rank.Size(), mpicache.MPILibrary())
	transporttest.Run(t, []mpicache.Transport{rank})
}
