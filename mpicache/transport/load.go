package transport

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"rankpool/mpicache/transport/mpi"
	"rankpool/mpicache/transport/mpilib"
)

// Library is an MPI library that can be loaded.
type Library struct {
	Path    string // absolute
	Version string // the first line of its version text
	ABI     string // Open MPI, MPICH, MPI 5
	Family  mpilib.Family
	Why     string // it was chosen: a clause
}

// ErrNoLibrary means that no MPI library can be loaded; its text names what was looked for, and
// what to do.
var ErrNoLibrary = errors.New("no MPI library can be loaded")

// Load loads the first of the libraries that can be loaded, for the life of the process. It does
// not start MPI.
//
// Errors: ErrNoLibrary.
func Load(choices []mpilib.Choice) (Library, error) {
	var missing, broken []string
	for _, c := range choices {
		library, err := mpi.Load(c.Name)
		if err == nil {
			version, _, _ := strings.Cut(library.Text, "\n")
			return Library{
				Path: library.Path, Version: strings.Join(strings.Fields(version), " "),
				ABI:    library.ABI,
				Family: mpilib.FamilyOf(library.Text, library.ABI), Why: c.Why,
			}, nil
		}
		// The loader's own words for a name that it does not find.
		if !strings.HasPrefix(err.Error(),
			c.Name+": cannot open shared object file: No such file") {
			broken = append(broken, err.Error())
		} else if !slices.Contains(missing, c.Name) {
			missing = append(missing, c.Name)
		}
	}
	looked := ""
	if len(missing) > 0 {
		looked = fmt.Sprintf("no %s is there, looked for since %s", strings.Join(missing, ", "),
			choices[0].Why)
	}
	return Library{}, fmt.Errorf("%w (%s): load an MPI module, install Open MPI or MPICH, "+
		"or name a library in %s", ErrNoLibrary,
		strings.Trim(strings.Join(append(broken, looked), "; "), "; "), mpilib.Variable)
}
