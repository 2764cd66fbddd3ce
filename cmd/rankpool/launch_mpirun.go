package main

import (
	"path/filepath"
	"strconv"
	"strings"

	"rankpool/mpicache"
	"rankpool/mpicache/mpilib"
)

// mpirunArgs returns the command line that starts ranks ranks of serve on this machine.
//
// Open MPI would refuse more ranks than cores, would bind each rank to one core (then Go runs on one thread), and
// would leave its files in /tmp and /dev/shm when it is killed: they go into the session folder.
func mpirunArgs(library mpicache.MPILibrary, mpirun, sessionDir string, ranks int, serve []string) []string {
	args := []string{mpirun}
	if library.Family == mpilib.OpenMPI {
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
