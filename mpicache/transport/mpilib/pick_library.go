package mpilib

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Variable is the environment variable that names the library.
const Variable = "RANKPOOL_MPI_LIBRARY"

// A Choice is a library to try.
type Choice struct {
	Name string // a path, or a name that the loader looks for
	Why  string // a clause: "mpirun in $PATH (/usr/bin/mpirun) is of Open MPI's family"
}

// Names that libraries of the families have.
//
// Source: Open MPI 3 to 5 (libmpi.so.40); MPICH's ABI Compatibility Initiative (libmpi.so.12),
// which Debian calls libmpich.so.12; MPI 5.0, chapter 20 (libmpi_abi).
var (
	openMPINames  = []string{"libmpi.so.40"}
	mpichNames    = []string{"libmpich.so.12", "libmpi.so.12"}
	standardNames = []string{"libmpi_abi.so.1"}
	anyNames      = slices.Concat(openMPINames, mpichNames, standardNames)
)

// Choices returns the libraries to try, the best first. getenv is os.Getenv.
func Choices(getenv func(string) string) []Choice {
	if name := getenv(Variable); name != "" {
		return []Choice{{name, Variable + " says so"}}
	}
	path, err := exec.LookPath("mpirun")
	family := Family("")
	if err == nil {
		family = FamilyOfMpirun(path)
	}
	if launcher, why := startedBy(getenv); launcher != "" {
		if family != launcher {
			path = "" // it belongs to another installation
		}
		return ofFamily(path, launcher, why)
	}
	switch {
	case err != nil:
		return named(anyNames, "no mpirun is in $PATH")
	case family == "":
		return named(anyNames, "mpirun in $PATH ("+path+") does not say whose it is")
	}
	why := fmt.Sprintf("mpirun in $PATH (%s) is of %s's family", path, family)
	return append(ofFamily(path, family, why),
		named(anyNames, "that of mpirun in $PATH ("+path+") is not there")...)
}

// startedBy returns the family of the launcher that started this process, and a clause with the
// reason. PMIx alone proves nothing: both families support it.
func startedBy(getenv func(string) string) (family Family, why string) {
	switch {
	case getenv("OMPI_COMM_WORLD_SIZE") != "":
		return OpenMPI, "Open MPI's mpirun started this process"
	case getenv("MPI_LOCALNRANKS") != "":
		return MPICH, "MPICH's mpirun started this process"
	case getenv("PMI_SIZE") != "" && getenv("PMIX_NAMESPACE") == "":
		return MPICH, "this process was started by PMI, as MPICH wants it"
	}
	return "", ""
}

// ofFamily returns the libraries of a family: first those in the installation that an mpirun
// belongs to, none for the path "", then those that the loader finds by name.
func ofFamily(mpirun string, family Family, why string) []Choice {
	names := mpichNames
	if family == OpenMPI {
		names = openMPINames
	}
	return append(beside(mpirun, slices.Concat(names, standardNames), why), named(names, why)...)
}

// beside returns the libraries with one of the names in the installation that an mpirun belongs to.
func beside(mpirun string, names []string, why string) (choices []Choice) {
	if mpirun == "" {
		return nil
	}
	paths := []string{mpirun}
	if real, err := filepath.EvalSymlinks(mpirun); err == nil && real != mpirun {
		paths = append(paths, real)
	}
	for _, path := range paths {
		prefix := filepath.Dir(filepath.Dir(path))
		for _, folder := range []string{"lib", "lib64", "lib/release"} { // the last is Intel MPI's
			for _, name := range names {
				file := filepath.Join(prefix, folder, name)
				if _, err := os.Stat(file); err == nil {
					choices = append(choices, Choice{file, why})
				}
			}
		}
	}
	return choices
}

// named returns the choices of libraries with these names, for the loader to find.
func named(names []string, why string) (choices []Choice) {
	for _, name := range names {
		choices = append(choices, Choice{name, why})
	}
	return choices
}
