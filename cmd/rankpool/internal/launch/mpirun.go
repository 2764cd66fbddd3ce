package launch

import (
	"cmp"
	"path/filepath"
	"strconv"
	"strings"

	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport/mpilib"
)

// mpirunArgs returns the command line that starts ranks ranks of serve on this machine.
func mpirunArgs(mpirun string, ranks int, serve []string) []string {
	return append([]string{mpirun, "-n", strconv.Itoa(ranks)}, serve...)
}

// mpirunEnv returns the environment for mpirun: it starts a separate world on this machine, even
// inside a Slurm allocation, and even as root.
func mpirunEnv(env []string, uid int, family mpilib.Family, sessionDir string) []string {
	set := map[string]string{}
	if family == mpilib.OpenMPI {
		set = openMPIEnv(sessionDir)
		set["OMPI_MCA_btl"] = cmp.Or(world.Lookup(env)("OMPI_MCA_btl"), set["OMPI_MCA_btl"])
	}
	for _, name := range jobLimits {
		if value := world.Lookup(env)(name); value != "" {
			set[name] = value
		}
	}
	if uid == 0 {
		set["OMPI_ALLOW_RUN_AS_ROOT"], set["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1", "1"
	}
	return world.WithEnv(world.WithoutLaunch(env, "SLURM_"), set)
}

// openMPIEnv returns the settings of Open MPI's mpirun for version 4 (ORTE) and version 5 (PRRTE),
// whose options have different names: each version ignores the other's variables.
//
// By default mpirun would refuse more ranks than cores, bind each rank to one core (Go then runs on
// one thread), and leave its files in /tmp and /dev/shm when it is killed: they go into the session
// folder. On one machine it needs no TCP, and version 5 complains about TCP interfaces; the other
// components left out are those that Debian leaves out. Version 5 would speak to its ranks by
// another interface than the loopback, if there is one, and fail when that one goes away.
func openMPIEnv(sessionDir string) map[string]string {
	set := map[string]string{
		"OMPI_MCA_btl":                          "^tcp,uct,openib,ofi",
		"OMPI_MCA_orte_execute_quiet":           "1",
		"OMPI_MCA_rmaps_base_oversubscribe":     "1",
		"OMPI_MCA_hwloc_base_binding_policy":    "none",
		"OMPI_MCA_orte_base_help_aggregate":     "0",
		"OMPI_MCA_orte_tmpdir_base":             sessionDir,
		"PMIX_MCA_ptl_base_if_include":          "lo",
		"PRTE_MCA_prte_execute_quiet":           "1",
		"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
		"PRTE_MCA_hwloc_default_binding_policy": "none",
		"PRTE_MCA_prte_tmpdir_base":             sessionDir,
	}
	if strings.HasPrefix(sessionDir, "/dev/shm"+string(filepath.Separator)) {
		// version 5 accepts the old name too
		set["OMPI_MCA_btl_vader_backing_directory"] = sessionDir
	}
	return set
}

// jobLimits are the variables of Slurm that describe a rank's limits and do not concern mpirun.
var jobLimits = []string{
	"SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_CPUS_ON_NODE",
	"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE",
}
