package mpilib

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install makes an installation below a folder: bin/mpirun, which prints text, and libraries in
// lib.
func install(t *testing.T, prefix, text string, libraries ...string) (mpirun string) {
	t.Helper()
	for _, folder := range []string{"bin", "lib"} {
		if err := os.MkdirAll(filepath.Join(prefix, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range libraries {
		if err := os.WriteFile(filepath.Join(prefix, "lib", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mpirun = filepath.Join(prefix, "bin", "mpirun")
	if err := os.WriteFile(mpirun, []byte("#!/bin/sh\necho '"+text+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return mpirun
}

func TestChoices(t *testing.T) {
	dir := t.TempDir()
	open := install(t, dir+"/open", "mpirun (Open MPI) 5.0.7", "libmpi.so.40")
	mpich := install(t, dir+"/mpich", "HYDRA build details:", "libmpi.so.12", "libmpi_abi.so.1")
	debian := install(t, dir+"/debian", "HYDRA build details:")
	strange := install(t, dir+"/strange", "no options, please")
	// as by update-alternatives: the libraries are beside what it links to
	linked := dir + "/linked/mpirun"
	if err := os.Mkdir(dir+"/linked", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(open, linked); err != nil {
		t.Fatal(err)
	}
	const openNames, mpichNames = "libmpi.so.40", "libmpich.so.12 libmpi.so.12"
	const allNames = openNames + " " + mpichNames + " libmpi_abi.so.1"
	for _, c := range []struct {
		name string
		env  string
		path string // mpirun in $PATH
		want string // names
		why  string // of the first
	}{
		{
			"the variable",
			"RANKPOOL_MPI_LIBRARY=y.so OMPI_COMM_WORLD_SIZE=2",
			open, "y.so", "RANKPOOL_MPI_LIBRARY says so",
		},
		{
			"Open MPI's launcher",
			"OMPI_COMM_WORLD_SIZE=2", mpich, openNames,
			"Open MPI's mpirun started",
		},
		{
			"and its mpirun",
			"OMPI_COMM_WORLD_SIZE=2", open,
			dir + "/open/lib/libmpi.so.40 " + openNames, "Open MPI's mpirun started",
		},
		{"Hydra", "MPI_LOCALNRANKS=2 PMI_SIZE=2", open, mpichNames, "MPICH's mpirun started"},
		{"PMI2", "PMI_SIZE=2", open, mpichNames, "started by PMI"},
		{
			"PMIx says nothing",
			"PMIX_NAMESPACE=a PMIX_RANK=0", debian,
			mpichNames + " " + allNames, "mpirun in $PATH (" + debian + ") is of MPICH's family",
		},
		{
			"mpirun in $PATH",
			"", open,
			dir + "/open/lib/libmpi.so.40 " + openNames + " " + allNames,
			"is of Open MPI's family",
		},
		{
			"a link",
			"", linked, dir + "/open/lib/libmpi.so.40 " + openNames + " " + allNames,
			"is of Open MPI's family",
		},
		{
			"another mpirun",
			"", mpich,
			dir + "/mpich/lib/libmpi.so.12 " + dir + "/mpich/lib/libmpi_abi.so.1 " + mpichNames +
				" " + allNames,
			"mpirun in $PATH (" + mpich + ") is of MPICH's family",
		},
		{"a strange mpirun", "", strange, allNames, "does not say whose it is"},
		{"no mpirun", "", "", allNames, "no mpirun is in $PATH"},
	} {
		t.Setenv("PATH", filepath.Dir(c.path)+":/bin/nowhere")
		choices := Choices(func(name string) string {
			for word := range strings.FieldsSeq(c.env) {
				if value, found := strings.CutPrefix(word, name+"="); found {
					return value
				}
			}
			return ""
		})
		var names []string
		for _, choice := range choices {
			names = append(names, choice.Name)
		}
		if got := strings.Join(names, " "); got != c.want ||
			!strings.Contains(choices[0].Why, c.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got, choices[0].Why, c.want, c.why)
		}
	}
}

func TestFindMpirun(t *testing.T) {
	dir := t.TempDir()
	open := install(t, dir+"/open", "mpirun (Open MPI) 5.0.3")
	mpich := install(t, dir+"/mpich", "HYDRA build details:")
	both := filepath.Dir(open) + ":" + filepath.Dir(mpich) + ":/bin/nowhere"
	if err := os.Rename(mpich, filepath.Dir(mpich)+"/mpiexec.hydra"); err != nil {
		t.Fatal(err)
	}
	mpich = filepath.Dir(mpich) + "/mpiexec.hydra"
	for _, c := range []struct {
		family          Family
		path, want, err string
	}{
		{OpenMPI, both, open, ""},
		{MPICH, both, mpich, ""},
		{Other, both, open, ""},
		{
			MPICH, filepath.Dir(open), "",
			"no mpirun of MPICH, whose library was chosen, was found as mpirun, ",
		},
		{OpenMPI, dir + "/none", "", "no mpirun of Open MPI"},
	} {
		t.Setenv("PATH", c.path)
		got, err := FindMpirun(c.family)
		if got != c.want || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("FindMpirun(%q) in %s = %q, %v", c.family, c.path, got, err)
		}
	}
}

func TestFamilyOf(t *testing.T) {
	for _, c := range []struct {
		text, abi string
		want      Family
	}{
		{"Open MPI v4.1.4", "Open MPI", OpenMPI},
		{"IBM Spectrum MPI v10", "Open MPI", OpenMPI},
		{"MPICH Version: 4.0.2", "MPICH", MPICH},
		{"Intel(R) MPI Library 2021.10", "MPICH", MPICH},
		{"MPICH Version: 5.0.0", "MPI 5", MPICH},
		{"Open MPI v6.0.0", "MPI 5", OpenMPI},
		{"Intel(R) MPI Library 2021.18", "MPI 5", MPICH},
		{"Somebody's MPI", "MPI 5", Other},
	} {
		if got := FamilyOf(c.text, c.abi); got != c.want {
			t.Errorf("FamilyOf(%q, %q) = %q, want %q", c.text, c.abi, got, c.want)
		}
	}
}
