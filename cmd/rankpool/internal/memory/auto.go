package memory

import (
	"fmt"
	"math"
	"slices"

	"rankpool/cmd/internal/exit"
	"rankpool/slurm"
	"rankpool/staging/sizes"
)

// Auto lets each rank choose the size of its slab.
const Auto = "auto"

const (
	// usualTrainerBytes is the memory that a training process is assumed to use with its DataLoader
	// workers, unless trainer-memory is set: some 4 GiB for PyTorch with CUDA and the pinned
	// batches, and half a GiB for each of eight workers. It is an estimate, since the trainers have
	// not started. An estimate that is too small costs performance, not the job: the slab shrinks
	// when memory runs short.
	usualTrainerBytes = 8 << 30
	// trainerShare is the largest part of the free memory that trainers get on the estimate alone.
	trainerShare = 2

	// The reserve is for memory that nothing else accounts for: the rank's own tables (157 MiB for
	// a million samples, see "make bench"), MPI's buffers, the job's shell and daemons, checkpoints
	// being written. It is a 20th of the limit plus this constant, at most a quarter. Training may
	// use most of it before the slab shrinks.
	autoReserveShare      = 20
	autoReserveBytes      = 256 << 20
	autoReserveLargeShare = 4
)

// autoReserve is how much of a memory limit --memory auto leaves free.
func autoReserve(limitBytes int64) int64 {
	return min(autoReserveBytes+limitBytes/autoReserveShare, limitBytes/autoReserveLargeShare)
}

// aloneShare is the part of the free memory that the cache uses at most outside a batch job, whose
// machine has other programs.
const aloneShare = 2

// Trainers describe the needs of trainers, for --memory auto.
type Trainers struct {
	Memory  string // of each trainer: a size; "": an estimate
	PerRank int    // how many trainers a rank has; 0: not known
}

// Check returns an error of wrong usage if a flag's value is not possible.
func (t *Trainers) Check() error {
	if t.Memory == "" {
		return nil
	}
	if _, err := sizes.Parse(t.Memory); err != nil {
		return exit.Usagef("--tune trainer-memory: %w", err)
	}
	return nil
}

// trainersHere estimates how many trainers this node will have: the largest number that any source
// gives.
func (t *Trainers) trainersHere(ranksHere int, getenv func(string) string) int {
	gpus := slurm.DetectGPUs(func(name string) (string, bool) { v := getenv(name); return v, v != "" })
	return max(1, t.PerRank*ranksHere, gpus.OnNode)
}

// TasksANode returns the most tasks that a batch script asks for on a node if run starts a training
// process in each, else 0. The ranks cannot know: in their step Slurm's variables describe only the
// ranks.
//
// Source: measured with Slurm 22.05: SLURM_TASKS_PER_NODE is then "1(x2)" in a step with one task a
// node, even if the job has more.
func TasksANode(job slurm.Job, ofJob bool) int {
	if counts := job.TaskCounts(); ofJob && len(counts) > 0 {
		return slices.Max(counts)
	}
	return 0
}

// An AutoPlan is how --memory auto arrived at the size of a rank's slab.
type AutoPlan struct {
	memory       slurm.Memory // of the node
	sharedBytes  int64        // free in /dev/shm; 0: not known
	Trainers     int
	eachBytes    int64 // for a trainer
	estimated    bool  // eachBytes is
	reserveBytes int64
	mostBytes    int64 // for all ranks here, outside a batch job; 0: no limit
	RanksHere    int
	Before       int64 // the slab of this rank before it was restarted; 0: it was not
}

// NewAutoPlan measures the node's memory.
func NewAutoPlan(
	t Trainers, memory slurm.Memory, ranksHere int, getenv func(string) string,
) (*AutoPlan, error) {
	p := &AutoPlan{
		memory: memory, Trainers: t.trainersHere(ranksHere, getenv), estimated: t.Memory == "",
		eachBytes:    usualTrainerBytes,
		reserveBytes: autoReserve(memory.LimitBytes), RanksHere: ranksHere,
	}
	p.sharedBytes, _ = sharedMemoryFree()
	if getenv("SLURM_JOB_ID")+getenv("PBS_JOBID")+getenv("LSB_JOBID") == "" {
		p.mostBytes = memory.FreeBytes / aloneShare
		p.reserveBytes = min(p.reserveBytes, memory.FreeBytes/autoReserveLargeShare)
	}
	if p.estimated {
		p.eachBytes = min(p.eachBytes, memory.FreeBytes/trainerShare/int64(p.Trainers))
		return p, nil
	}
	var err error
	p.eachBytes, err = sizes.Parse(t.Memory)
	p.eachBytes = min(p.eachBytes, math.MaxInt64/int64(p.Trainers))
	return p, err
}

// SlabBytes is the size of a rank's slab; 0 or less if no memory is left for it.
func (p *AutoPlan) SlabBytes() int64 {
	if p.Before > 0 {
		return p.Before
	}
	left := p.memory.FreeBytes - p.reserveBytes
	left -= int64(p.Trainers) * p.eachBytes
	if p.mostBytes > 0 {
		left = min(left, p.mostBytes)
	}
	if p.sharedBytes > 0 {
		left = min(left, p.sharedBytes-p.sharedBytes/autoReserveShare)
	}
	return left / int64(p.RanksHere)
}

// String explains the slab's size in a sentence.
func (p *AutoPlan) String() string {
	text := fmt.Sprintf("%s free of %s (%s)", Text(p.memory.FreeBytes), Text(p.memory.LimitBytes),
		p.memory.Limit)
	trainers, flag := "1 trainer (", "--tune trainer-memory"
	if p.Trainers > 1 {
		trainers = fmt.Sprintf("%d trainers (%s each, ", p.Trainers, Text(p.eachBytes))
	}
	if p.estimated {
		flag = "an estimate, see --tune trainer-memory"
	}
	text += fmt.Sprintf(", less %s for %s%s), less %s in reserve",
		Text(int64(p.Trainers)*p.eachBytes), trainers, flag, Text(p.reserveBytes))
	slab := p.SlabBytes()
	switch {
	case slab <= 0:
		return text + ", leaves nothing for the cache"
	case p.RanksHere > 1:
		text += fmt.Sprintf(", for %d ranks", p.RanksHere)
	}
	if p.mostBytes > 0 && slab == p.mostBytes/int64(p.RanksHere) {
		text += ", and at most half of what is free, outside a batch job"
	}
	if p.sharedBytes > 0 &&
		slab == (p.sharedBytes-p.sharedBytes/autoReserveShare)/int64(p.RanksHere) {
		text += fmt.Sprintf(", and no more than /dev/shm holds (%s)", Text(p.sharedBytes))
	}
	return text + " = " + Text(slab) + " for the cache"
}
