package launch

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/slurm"
)

// TestTasksOfBatchScript checks that ranks know how many trainers srun starts on their nodes.
func TestTasksOfBatchScript(t *testing.T) {
	job := slurm.Job{JobID: "7", Nodes: 3, TasksPerNode: "2,4(x2)"}
	for _, c := range []struct {
		job  slurm.Job
		f    form
		want int
	}{{job, FormSlurm, 4}, {job, formTask, 1}, {slurm.Job{JobID: "7", Nodes: 1}, FormSlurm, 1}} {
		o := &Options{
			trainersPerRank: 1, trainings: 1, startTimeout: 1, batchTimeout: 1,
			Command: []string{"true"},
		}
		o.cache.Register(pflag.NewFlagSet("", pflag.ContinueOnError))
		o.cache.Data = []string{"/d"}
		if err := o.check(c.job, c.f, world.Place{Tasks: 1}); err != nil ||
			o.cache.Trainers.PerRank != c.want {
			t.Errorf("%+v: %d trainers, %v", c, o.cache.Trainers.PerRank, err)
		}
	}
}

// TestMemoryLimitsReachRanks checks that ranks that mpirun starts learn the limits that Slurm gave
// the job.
func TestMemoryLimitsReachRanks(t *testing.T) {
	env := mpirunEnv([]string{"SLURM_JOB_ID=1", "SLURM_MEM_PER_NODE=5", "SLURM_NTASKS=7"}, 1000,
		mpilib.MPICH, "/dev/shm/s")
	if want := []string{"SLURM_MEM_PER_NODE=5"}; !slices.Equal(env, want) {
		t.Errorf("mpirun's environment is %q, want %q", env, want)
	}
}
