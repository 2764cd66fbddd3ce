package transport_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/mpi/mpitest"
	"rankpool/mpicache/transport/mpilib"
)

// TestMain ends as a rank ends: it notifies the launcher. It fails if MPI_Finalize hangs.
func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("RANKPOOL_TEST_RANKS") != "" {
		transport.ExitMPI(code)
		fmt.Fprintln(os.Stderr, "MPI_Finalize has not returned")
		code = max(code, 1)
	}
	os.Exit(code)
}

// TestMPIContract runs the contract with this process as one rank. Under mpirun (test-mpi.sh) it is
// one of a group, with the launcher's library; else it is alone, with a library of the standard
// ABI, which no machine of ours has.
func TestMPIContract(t *testing.T) {
	choices, ranks := mpilib.Choices(os.Getenv), 1
	if text := os.Getenv("RANKPOOL_TEST_RANKS"); text == "" {
		choices = []mpilib.Choice{{Name: mpitest.Build(t, "STANDARD"), Why: "of the test"}}
	} else if n, err := strconv.Atoi(text); err == nil {
		ranks = n
	}
	library, err := transport.Load(choices)
	if err != nil {
		t.Fatal(err)
	}
	if want := os.Getenv("RANKPOOL_TEST_MPI"); want != "" && string(library.Family) != want {
		t.Errorf("%+v under the mpirun of %s", library, want)
	}
	rank, err := transport.NewMPI()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := transport.NewMPI(); err == nil {
		t.Error("MPI was started twice")
	}
	if rank.Size() != ranks {
		t.Fatalf("a group of %d, not %d", rank.Size(), ranks)
	}
	t.Logf("rank %d of %d, %+v", rank.Rank(), rank.Size(), library)
	checkContract(t, []transport.Transport{rank})
}
