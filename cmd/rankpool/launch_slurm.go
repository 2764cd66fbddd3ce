package main

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
)

// slurmLayout starts two steps that overlap: the cache, one rank a node, and the training command with the tasks
// that the batch script asked for. They are two, because a rank that dies takes its step with it.
//
// --mem=0 lets a step share the job's memory: without it a step of the user's that runs beside holds it all.
func (o *runOptions) slurmLayout(job slurm.Job, dir string, env []string) layout {
	l := layout{restart: true, reports: true, step: dir}
	get := lookup(env)
	everyNode := []string{
		"srun", "--overlap", "--mem=0", "--export=ALL", "--input=none", "--cpu-bind=none",
		"--nodes=" + strconv.Itoa(job.Nodes), "--ntasks=" + strconv.Itoa(job.Nodes), "--ntasks-per-node=1",
	}
	cache := append(slices.Clone(everyNode), cacheGPUs(get, slurmVersion()),
		"--job-name=rankpool", "--kill-on-bad-exit=1", "--mpi="+o.slurmMPI())
	l.cache = command{args: append(cache, o.serveArgs(dir)...), env: o.withLibrary(cacheStepEnv(env)), ours: true}
	train := []string{
		"srun", "--overlap", "--mem=0", "--export=ALL", "--kill-on-bad-exit=1", "--quit-on-interrupt", o.self, "join", "--session", dir, "--",
	}
	l.trainers = []command{{args: append(train, o.command...), env: withEnv(env, trainingStep(job, get, dir)), stdout: os.Stdout}}
	l.endRanks = append(slices.Clone(everyNode), "--gres=none", "--mpi=none", o.self, "end", "--session", dir)
	l.end = slices.Clone(l.endRanks)
	l.endRanks = append(l.endRanks, "--keep")
	if onFirstNode(job) {
		l.folders = []string{session.RankFolder(dir, 0)}
	}
	return l
}

// trainingStep returns what the environment of the training step's srun gets.
//
// Source: SchedMD, release notes of Slurm 22.05: srun no longer takes --cpus-per-task from the batch script's environment; it reads
// SRUN_CPUS_PER_TASK.
func trainingStep(job slurm.Job, get func(string) string, dir string) map[string]string {
	set := map[string]string{"RANKPOOL_SESSION": dir}
	if get("MASTER_ADDR") == "" {
		set["MASTER_ADDR"] = job.FirstHost()
	}
	if get("MASTER_PORT") == "" {
		set["MASTER_PORT"] = strconv.Itoa(agreedPort(job.JobID))
	}
	if cpus := get("SLURM_CPUS_PER_TASK"); cpus != "" && get("SRUN_CPUS_PER_TASK") == "" {
		set["SRUN_CPUS_PER_TASK"] = cpus
	}
	return set
}

// cacheGPUs returns the option of srun for the GPUs of the cache's step, which looks at them and leaves them to training. Where steps
// could not share GPUs, or the batch script does not say that each node has as many, it does without.
//
// Source: SchedMD, release notes of Slurm 22.05: srun --overlap now shares memory and GRES too. Slurm refuses --gres=none beside
// --gpus-per-node.
func cacheGPUs(get func(string) string, version string) string {
	if gpus := get("SLURM_GPUS_PER_NODE"); gpus != "" && version >= "22.05" {
		return "--gpus-per-node=" + gpus
	}
	return "--gres=none"
}

// slurmVersion returns the version of srun, as in "22.05.8"; "" when it cannot be had.
func slurmVersion() string {
	text, _ := exec.Command("srun", "--version").Output()
	fields := strings.Fields(string(text)) // "slurm 23.11.4", "slurm-wlm 22.05.8"
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// cacheStepEnv returns the environment of the srun that starts the ranks.
//
// Of Slurm's algorithms for PMIx's fences it asks for the ring, unless the user has chosen. Source: measured with Slurm 22.05, PMIx 4.2 and
// Open MPI 4.1 on two nodes: by default ("mixed") 4 of 1,000 starts died in MPI_Init, where a message came before its receiver was ready;
// by ring or tree 0 of 1,200, but by tree a step hangs that is not on the allocation's first node.
func cacheStepEnv(env []string) []string {
	env = withoutTaskOptions(env)
	if lookup(env)("SLURM_PMIX_FENCE") != "" {
		return env
	}
	return withEnv(env, map[string]string{"SLURM_PMIX_FENCE": "ring"})
}

// withoutTaskOptions returns env without the batch script's options for its tasks, which srun would take for steps of one task a node.
func withoutTaskOptions(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(taskOptions, name)
	})
}

// taskOptions are what sbatch and users set and srun reads.
//
// Source: SchedMD, srun(1), INPUT ENVIRONMENT VARIABLES.
var taskOptions = []string{
	"SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_GPU_FREQ",
	"SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_CORE", "SLURM_TRES_PER_TASK",
	"SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_THREADS_PER_CORE", "SLURM_HINT", "SLURM_DISTRIBUTION",
	"SLURM_CPU_BIND", "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_GRES", "SLURM_STEP_GRES",
}

// slurmMPI returns srun's name for how to start ranks of a family, of those that list, the answer to "srun --mpi=list", has; the one to
// wish for where it has none, or is "". Without a library it is "none".
//
// Source: measured with Slurm 22.05, Open MPI 4.1 and MPICH 4.0: MPICH does not speak PMIx, Open MPI as Debian builds it does not speak
// PMI2, and each silently starts worlds of one under the other's. Builds differ: the world's size is checked.
func slurmMPI(family mpilib.Family, list string) string {
	var wishes []string
	switch family {
	case mpilib.OpenMPI, mpilib.Other: // PMIx is the one that others have in common
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
		versions := slices.DeleteFunc(slices.Clone(offered), func(name string) bool { return !strings.HasPrefix(name, wish+"_v") })
		if len(versions) > 0 {
			return slices.Max(versions)
		}
	}
	return wishes[0]
}

// slurmMPI is how srun starts the ranks; one of them alone needs no MPI.
func (o *runOptions) slurmMPI() string {
	if o.library.Path == "" {
		return "none"
	}
	return slurmMPI(o.library.Family, srunList())
}

// srunList returns what srun says of its ways to start MPI; "" when it cannot be had.
func srunList() string {
	text, _ := exec.Command("srun", "--mpi=list").CombinedOutput() // Slurm before 22 wrote it to stderr
	return string(text)
}

// onFirstNode reports whether this process runs on the first node of the allocation, where rank 0 is. The shell of
// salloc may run elsewhere.
func onFirstNode(job slurm.Job) bool {
	if job.NodeID != slurm.Absent {
		return job.NodeID == 0
	}
	host, err := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	first, _, _ := strings.Cut(job.FirstHost(), ".")
	return err == nil && short == first
}
