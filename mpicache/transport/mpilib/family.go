package mpilib

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A Family is a group of MPI libraries that are launched alike.
type Family string

// The families. Libraries with MPICH's ABI are MPICH: Intel MPI, MVAPICH, Cray MPICH.
const (
	OpenMPI Family = "openmpi"
	MPICH   Family = "mpich"
	Other   Family = "other"
)

// String is the name that people use.
func (f Family) String() string {
	switch f {
	case OpenMPI:
		return "Open MPI"
	case MPICH:
		return "MPICH"
	}
	return "the MPI"
}

// FamilyOf returns the family of a library by its version text and the name of its ABI.
func FamilyOf(text, abi string) Family {
	switch {
	case abi == "Open MPI", strings.HasPrefix(text, "Open MPI"):
		return OpenMPI
	case abi == "MPICH", IsMPICH(text):
		return MPICH
	}
	return Other
}

// mpichTexts is what the version texts of MPICH and its descendants contain.
var mpichTexts = []string{"MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation MPI"}

// IsMPICH reports whether a version text is that of MPICH or of one of its descendants.
func IsMPICH(text string) bool {
	return slices.ContainsFunc(mpichTexts, func(name string) bool {
		return strings.Contains(text, name)
	})
}

// launchers are the programs that start ranks of a family, and words of which "--version" prints
// one. mpirun comes first: it belongs to the loaded module.
var launchers = map[Family]struct{ names, words []string }{
	OpenMPI: {[]string{"mpirun", "mpirun.openmpi"}, []string{"Open MPI", "OpenRTE", "PRRTE"}},
	MPICH: {
		[]string{"mpirun", "mpirun.mpich", "mpiexec.hydra"},
		[]string{"HYDRA", "Hydra", "hydra", "Intel(R) MPI", "MVAPICH"},
	},
	Other: {[]string{"mpirun", "mpiexec"}, nil}, // any will have to do
}

// versionWithin is how long a launcher may take to print its version.
const versionWithin = 10 * time.Second

// FamilyOfMpirun returns the family of an mpirun, "" if unknown.
func FamilyOfMpirun(path string) Family {
	ctx, cancel := context.WithTimeout(context.Background(), versionWithin)
	defer cancel()
	command := exec.CommandContext(ctx, path, "--version")
	command.WaitDelay = time.Second
	text, _ := command.Output() // without a version the family is unknown
	for _, family := range []Family{OpenMPI, MPICH} {
		for _, word := range launchers[family].words {
			if strings.Contains(string(text), word) {
				return family
			}
		}
	}
	return ""
}

// FindMpirun returns the path of an mpirun in $PATH that starts ranks of a family.
func FindMpirun(family Family) (string, error) {
	names := launchers[family].names
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if family == Other || FamilyOfMpirun(path) == family {
			return path, nil
		}
	}
	return "", fmt.Errorf("no mpirun of %s, whose library was chosen, was found as %s: "+
		"install it, put its folder into $PATH, or name another library in %s",
		family, strings.Join(names, ", "), Variable)
}
