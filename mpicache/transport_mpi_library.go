package mpicache

import (
	"errors"
	"fmt"
	"strings"

	"rankpool/mpicache/internal/mpi"
	"rankpool/mpicache/mpilib"
)

// MPILibrary is an MPI library that can be loaded.
type MPILibrary struct {
	Path    string // absolute
	Version string // the first line of its version text
	ABI     string // Open MPI, MPICH, MPI 5
	Family  mpilib.Family
	Why     string // it was chosen: a clause
}

// ErrNoMPI says that no MPI library can be loaded; its text says what was looked for, and what to do.
var ErrNoMPI = errors.New("no MPI library can be loaded")

// LoadMPI loads the first of the libraries that can be, for the life of the process. It starts nothing of MPI.
//
// Errors: ErrNoMPI.
func LoadMPI(choices []mpilib.Choice) (MPILibrary, error) {
	var missing, broken []string
	for _, c := range choices {
		library, err := mpi.Load(c.Name)
		if err == nil {
			version, _, _ := strings.Cut(library.Text, "\n")
			return MPILibrary{
				Path: library.Path, Version: strings.Join(strings.Fields(version), " "), ABI: library.ABI,
				Family: mpilib.FamilyOf(library.Text, library.ABI), Why: c.Why,
			}, nil
		}
		// The loader's own words for a name that it does not find.
		if strings.HasPrefix(err.Error(), c.Name+": cannot open shared object file: No such file") {
			missing = append(missing, c.Name)
		} else {
			broken = append(broken, err.Error())
		}
	}
	return MPILibrary{}, fmt.Errorf("%w (%s): load an MPI module, install Open MPI or MPICH, or name a library with --mpi-library or %s",
		ErrNoMPI, strings.Join(append(broken, tried(choices, missing)...), "; "), mpilib.Variable)
}

// tried says which libraries are not there, and why these were looked for.
func tried(choices []mpilib.Choice, missing []string) []string {
	if len(missing) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("there is no %s, which was looked for: %s", strings.Join(missing, ", no "), choices[0].Why)}
}
