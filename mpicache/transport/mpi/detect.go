package mpi

import (
	"fmt"
	"path/filepath"
	"strings"

	"rankpool/mpicache/transport/mpilib"
)

// detect returns the ABI of a library: file is its own path, path the one it was requested by, text
// its version.
//
// Errors: the ABI is unknown. Calling such a library would write to the wrong places.
func detect(path, file, text string, symbol func(name string) uintptr) (abi, error) {
	about, _, _ := strings.Cut(text, "\n")
	if isStandard(path) || isStandard(file) {
		get := symbol("MPI_Abi_get_version")
		if get != 0 && call(get, out(&results.a), out(&results.b)) == success && results.a == 1 {
			return standardABI, nil
		}
		// Drafts of the standard, as in MPICH 4.2's libmpi_abi.so.0, had other constants.
		return abi{}, fmt.Errorf("%s (%s) does not have version 1 of MPI 5's ABI", path, about)
	}
	if world := symbol("ompi_mpi_comm_world"); world != 0 {
		a := openMPI
		a.world, a.self, a.byteType = world, symbol("ompi_mpi_comm_self"), symbol("ompi_mpi_byte")
		a.errorsReturn, a.requestNull = symbol("ompi_mpi_errors_return"),
			symbol("ompi_request_null")
		return a, nil
	}
	if mpilib.IsMPICH(text) {
		return mpichABI, nil
	}
	return abi{}, fmt.Errorf("%s (%s) is neither Open MPI, nor an MPI with MPICH's or MPI 5's ABI",
		path, about)
}

// isStandard reports whether a library has the name that MPI 5 gives to those with its ABI.
func isStandard(path string) bool { return strings.HasPrefix(filepath.Base(path), "libmpi_abi") }
