package launch

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/slurm"
)

// slurmLayout starts two overlapping steps: the cache, with one rank per node, and the training
// command, with the tasks that the batch script asked for. With several trainings, each is a step
// with that many tasks. The steps are separate because a rank that dies takes its step with it.
//
// --mem=0 lets a step share the job's memory: otherwise a step that the user runs beside it
// reserves all of it.
func (o *Options) slurmLayout(job slurm.Job, dir string, env []string) layout {
	l := layout{restart: true, reports: true, step: dir}
	o.slurmCache(&l, job, dir, env)
	for training := range o.trainings {
		l.trainers = append(l.trainers, o.slurmTraining(training, job, dir, env))
	}
	if onFirstNode(job) {
		l.folders = []string{session.RankFolder(dir, 0)}
	}
	return l
}

// slurmTraining returns the step of a training.
func (o *Options) slurmTraining(training int, job slurm.Job, dir string, env []string) command {
	words := []string{
		"srun", "--overlap", "--mem=0", "--export=ALL", "--kill-on-bad-exit=1",
		"--quit-on-interrupt", o.self, "join", "--session", dir,
	}
	set := trainingStep(job, world.Lookup(env), dir)
	if o.trainings > 1 {
		env = trainingEnv(env, training, o.trainings)
		words = append(words, "--job", world.Lookup(env)("RANKPOOL_JOB"))
		set["MASTER_PORT"] = strconv.Itoa(trainingPort(job.JobID, training))
	}
	return command{
		args: append(append(words, "--"), o.Command...), env: world.WithEnv(env, set),
		stdout: os.Stdout, training: training, among: o.trainings,
	}
}

// slurmCache fills in the cache's step and the one that ends it, on all nodes of the job.
func (o *Options) slurmCache(l *layout, job slurm.Job, dir string, env []string) {
	nodes, mpi := strconv.Itoa(job.Nodes), "none"
	if job.Nodes > 1 { // a single rank needs no MPI
		mpi = world.SlurmMPI(o.library.Family, world.SrunList())
	}
	everyNode := []string{
		"srun", "--overlap", "--mem=0", "--export=ALL", "--input=none", "--cpu-bind=none",
		"--nodes=" + nodes, "--ntasks=" + nodes, "--ntasks-per-node=1",
	}
	cache := append(slices.Clone(everyNode), cacheGPUs(world.Lookup(env), slurmVersion()),
		"--job-name=rankpool", "--kill-on-bad-exit=1", "--mpi="+mpi)
	l.cache = cacheCommand(append(cache, o.serve()...),
		o.withLibrary(o.serveEnv(cacheStepEnv(env), dir, false)))
	l.end = append(slices.Clone(everyNode), "--gres=none", "--mpi=none", o.self, "end",
		"--session", dir)
	l.endRanks = append(slices.Clone(l.end), "--keep")
}

// lostNodes returns why training ends if Slurm has taken nodes from the job, which lives on without
// them (sbatch --no-kill); "" if it has not, or if Slurm does not say. Fewer ranks would give
// trainers other draws.
func lostNodes(job slurm.Job) string {
	state, known := askJob(job)
	had, err := job.Hosts()
	has, badly := slurm.ParseHostlist(state.nodes)
	if !known || err != nil || badly != nil || len(has) == 0 {
		return ""
	}
	lost := slices.DeleteFunc(had, func(host string) bool { return slices.Contains(has, host) })
	if len(lost) == 0 || len(lost) == len(had) { // "(null)" names no node
		return ""
	}
	return fmt.Sprintf("the job has lost %s, whose rank cannot be started again: resume from a "+
		"checkpoint in another job", slurm.FormatHostlist(lost))
}

// trainingStep returns the environment of the training step's srun.
//
// Source: SchedMD, release notes of Slurm 22.05: srun no longer reads --cpus-per-task from the
// batch script's environment; it reads SRUN_CPUS_PER_TASK.
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

// cacheGPUs returns srun's option for the GPUs of the cache's step, which monitors them and leaves
// them to training. It is --gres=none if steps cannot share GPUs, or the batch script does not ask
// for the same number on each node.
//
// Source: SchedMD, release notes of Slurm 22.05: srun --overlap now shares memory and GRES too.
// Slurm refuses --gres=none beside --gpus-per-node.
func cacheGPUs(get func(string) string, version string) string {
	if gpus := get("SLURM_GPUS_PER_NODE"); gpus != "" && version >= "22.05" {
		return "--gpus-per-node=" + gpus
	}
	return "--gres=none"
}

// slurmVersion returns the version of srun, as in "22.05.8"; "" if unknown.
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
// It selects the ring algorithm for the fences of Slurm's PMIx plugin, unless the user has chosen
// one. Source: measured with Slurm 22.05, PMIx 4.2 and Open MPI 4.1 on two nodes: with the default
// ("mixed") 4 of 1,000 starts died in MPI_Init, where a message arrived before its receiver was
// ready; with ring or tree 0 of 1,200, but with tree a step that does not include the allocation's
// first node hangs.
func cacheStepEnv(env []string) []string {
	return world.WithEnv(world.WithoutTaskOptions(env), map[string]string{
		"SLURM_PMIX_FENCE": cmp.Or(world.Lookup(env)("SLURM_PMIX_FENCE"), "ring"),
	})
}

// onFirstNode reports whether this process runs on the first node of the allocation, where rank 0
// is. The shell of salloc may run elsewhere.
func onFirstNode(job slurm.Job) bool {
	if job.NodeID != slurm.Absent {
		return job.NodeID == 0
	}
	host, err := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	first, _, _ := strings.Cut(job.FirstHost(), ".")
	return err == nil && short == first
}
