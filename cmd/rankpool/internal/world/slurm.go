package world

import (
	"os/exec"
	"slices"
	"strings"
	"unicode"

	"rankpool/mpicache/transport/mpilib"
)

// SlurmMPI returns the value of srun --mpi that starts ranks of a family, from list, the output of
// "srun --mpi=list"; if list has none or is "", the preferred one. Without a library it is "none".
//
// Source: measured with Slurm 22.05, Open MPI 4.1 and MPICH 4.0: MPICH does not support PMIx, Open
// MPI as built by Debian does not support PMI2, and each silently starts worlds of one under the
// other's. Builds differ: the world's size is checked.
func SlurmMPI(family mpilib.Family, list string) string {
	var wishes []string
	switch family {
	case mpilib.OpenMPI, mpilib.Other: // other MPIs have PMIx in common
		wishes = []string{"pmix", "pmi2"}
	case mpilib.MPICH:
		wishes = []string{"pmi2", "cray_shasta", "pmix"}
	default:
		return "none"
	}
	offered := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	for _, wish := range wishes {
		if slices.Contains(offered, wish) {
			return wish
		}
		versions := slices.DeleteFunc(slices.Clone(offered),
			func(name string) bool { return !strings.HasPrefix(name, wish+"_v") })
		if len(versions) > 0 {
			return slices.Max(versions)
		}
	}
	return wishes[0]
}

// SrunList returns srun's list of ways to start MPI; "" if unknown.
func SrunList() string {
	// Slurm before 22 wrote it to stderr
	text, _ := exec.Command("srun", "--mpi=list").CombinedOutput()
	return string(text)
}

// WithoutTaskOptions returns env without the batch script's options for its tasks, which srun would
// apply to steps of one task per node.
func WithoutTaskOptions(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(taskOptions, name)
	})
}

// taskOptions are what sbatch and users set and srun reads.
//
// Source: SchedMD, srun(1), INPUT ENVIRONMENT VARIABLES.
var taskOptions = []string{
	"SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
	"SLURM_GPU_BIND", "SLURM_GPU_FREQ",
	"SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET",
	"SLURM_NTASKS_PER_CORE", "SLURM_TRES_PER_TASK",
	"SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_THREADS_PER_CORE",
	"SLURM_HINT", "SLURM_DISTRIBUTION",
	"SLURM_CPU_BIND", "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_GRES", "SLURM_STEP_GRES",
}
