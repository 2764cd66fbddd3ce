package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// The flavours of MPI, as mpicache.MPIFlavour names them.
const (
	flavourOpenMPI = "openmpi"
	flavourMPICH   = "mpich"
	flavourOther   = "other"
)

// mpirunNames are the launchers of each flavour, the most telling name first, and a word of their "--version".
var mpirunNames = map[string]struct {
	names []string
	words []string
}{
	flavourOpenMPI: {[]string{"mpirun.openmpi", "mpirun"}, []string{"Open MPI", "OpenRTE", "PRRTE"}},
	flavourMPICH:   {[]string{"mpirun.mpich", "mpirun", "mpiexec.hydra"}, []string{"HYDRA", "Hydra"}},
	flavourOther:   {[]string{"mpirun", "mpiexec"}, []string{""}}, // any version will have to do
}

// findMPIRun returns the mpirun of the flavour that the binary was built with: the one the user named, or one in
// $PATH whose version fits.
func findMPIRun(flavour, named string) (string, error) {
	known, ok := mpirunNames[flavour]
	if !ok {
		return "", fmt.Errorf("this rankpool is built without MPI, so it can run one rank: build it with \"make build\" where mpicc is installed, or use --ranks 1")
	}
	names := known.names
	if named != "" {
		names = []string{named}
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		text, _ := exec.Command(path, "--version").Output() // a version that cannot be had does not fit
		for _, word := range known.words {
			if strings.Contains(string(text), word) {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("no mpirun of %s, which this rankpool is built with, was found as %s: install it or name it with --mpirun",
		flavourTitle(flavour), strings.Join(names, ", "))
}

func flavourTitle(flavour string) string {
	switch flavour {
	case flavourOpenMPI:
		return "Open MPI"
	case flavourMPICH:
		return "MPICH"
	}
	return "the MPI"
}

// mpirunArgs returns the command line that starts ranks ranks of serve on this machine.
//
// Open MPI would refuse more ranks than cores, would bind each rank to one core (then Go runs on one thread), and
// would leave its files in /tmp and /dev/shm when it is killed: they go into the session folder.
func mpirunArgs(flavour, mpirun, sessionDir string, ranks int, serve []string) []string {
	args := []string{mpirun}
	if flavour == flavourOpenMPI {
		args = append(args, "--quiet", "--oversubscribe", "--bind-to", "none",
			"--mca", "orte_base_help_aggregate", "0", "--mca", "orte_tmpdir_base", sessionDir)
		if strings.HasPrefix(sessionDir, "/dev/shm"+string(filepath.Separator)) {
			args = append(args, "--mca", "btl_vader_backing_directory", sessionDir)
		}
	}
	return append(append(args, "-n", strconv.Itoa(ranks)), serve...)
}

// mpirunEnv returns the environment for mpirun: it starts a world of its own on this machine, also inside an
// allocation of Slurm, and as root too.
func mpirunEnv(env []string, uid int) []string {
	set := map[string]string{}
	for _, name := range jobLimits {
		if value := lookup(env)(name); value != "" {
			set[name] = value
		}
	}
	if uid == 0 {
		set["OMPI_ALLOW_RUN_AS_ROOT"], set["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1", "1"
	}
	return withEnv(withoutLaunch(env, "SLURM_"), set)
}

// jobLimits are the variables of Slurm that tell a rank what it may use, and mpirun nothing.
var jobLimits = []string{
	"SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE",
}
