package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/slurm"
)

// autoMemory lets each rank choose the size of its slab.
const autoMemory = "auto"

const (
	// usualTrainerBytes is what a training process is taken to use with its DataLoader workers, where --trainer-memory does not say: some
	// 4 GiB for PyTorch with CUDA and the pinned batches, and half a GiB for each of eight workers. It is an estimate, since the trainers
	// have not begun. One that is too small costs performance, not the job: the slab shrinks when memory runs short.
	usualTrainerBytes = 8 << 30
	// trainerShare of what is free goes to the trainers at the most where only the estimate speaks for them.
	trainerShare = 2

	// The reserve is for what nobody counts: the rank's own tables (157 MiB for a million samples, see "make bench"), MPI's buffers, the
	// shell and the daemons of the job, checkpoints that are being written. It is a 20th of the limit and this, at most a quarter. Training
	// may use most of it before the slab shrinks.
	autoReserveShare      = 20
	autoReserveBytes      = 256 << 20
	autoReserveLargeShare = 4
)

// autoReserve is how much of a memory limit --memory auto leaves free.
func autoReserve(limitBytes int64) int64 {
	return min(autoReserveBytes+limitBytes/autoReserveShare, limitBytes/autoReserveLargeShare)
}

// trainerOptions are the flags that say what trainers need, for --memory auto.
type trainerOptions struct {
	memory  string // of each trainer: a size; "": an estimate
	perRank int    // how many trainers a rank has; 0: not known
}

func (t *trainerOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&t.memory, "trainer-memory", "",
		"for --memory auto: what each training process uses with its DataLoader workers (default 8GiB, and all no more than half of the memory)")
}

func (t *trainerOptions) check() error {
	if t.perRank < 0 {
		return exit.Usagef("--trainers-per-rank: %d is no number of training processes", t.perRank)
	}
	if t.memory == "" {
		return nil
	}
	if _, err := parseSize(t.memory); err != nil {
		return exit.Usagef("--trainer-memory: %w", err)
	}
	return nil
}

// args returns the options as flags of serve.
func (t *trainerOptions) args() []string {
	var args []string
	if t.memory != "" {
		args = append(args, "--trainer-memory", t.memory)
	}
	if t.perRank > 0 {
		args = append(args, "--trainers-per-rank", strconv.Itoa(t.perRank))
	}
	return args
}

// trainersHere estimates how many trainers this node will have: the most that any sign speaks for.
func (t *trainerOptions) trainersHere(ranksHere int, getenv func(string) string) int {
	gpus := slurm.DetectGPUs(func(name string) (string, bool) { v := getenv(name); return v, v != "" })
	return max(1, t.perRank*ranksHere, gpus.OnNode)
}

// tasksANode returns the most tasks that a batch script asks for on a node, where run starts a training process in each; else 0. The ranks
// cannot know: in their step Slurm's variables tell of the ranks alone.
//
// Source: measured with Slurm 22.05: SLURM_TASKS_PER_NODE is then "1(x2)" in a step of a task a node, also where the job has more.
func tasksANode(job slurm.Job, f form) int {
	if counts := job.TaskCounts(); f == formSlurm && len(counts) > 0 {
		return slices.Max(counts)
	}
	return 0
}

// An autoPlan is how --memory auto came to the size of a rank's slab.
type autoPlan struct {
	memory       slurm.Memory // of the node
	sharedBytes  int64        // free in /dev/shm; 0: not known
	trainers     int
	eachBytes    int64 // for a trainer
	estimated    bool  // eachBytes is
	reserveBytes int64
	ranksHere    int
	before       int64 // the slab of this rank before it was started again; 0: it was not
}

// newAutoPlan measures the node's memory.
func newAutoPlan(t trainerOptions, memory slurm.Memory, ranksHere int, getenv func(string) string) (*autoPlan, error) {
	p := &autoPlan{
		memory: memory, trainers: t.trainersHere(ranksHere, getenv), estimated: t.memory == "", eachBytes: usualTrainerBytes,
		reserveBytes: autoReserve(memory.LimitBytes), ranksHere: ranksHere,
	}
	p.sharedBytes, _ = sharedMemoryFree()
	if p.estimated {
		p.eachBytes = min(p.eachBytes, memory.FreeBytes/trainerShare/int64(p.trainers))
		return p, nil
	}
	var err error
	p.eachBytes, err = parseSize(t.memory)
	p.eachBytes = min(p.eachBytes, math.MaxInt64/int64(p.trainers))
	return p, err
}

// slabBytes is what a rank gets; 0 or less: nothing is left.
func (p *autoPlan) slabBytes() int64 {
	if p.before > 0 {
		return p.before
	}
	left := p.memory.FreeBytes - p.reserveBytes
	left -= int64(p.trainers) * p.eachBytes
	if p.sharedBytes > 0 {
		left = min(left, p.sharedBytes-p.sharedBytes/autoReserveShare)
	}
	return left / int64(p.ranksHere)
}

// String says in a sentence how the slab got its size.
func (p *autoPlan) String() string {
	text := fmt.Sprintf("%s free of %s (%s)", size(p.memory.FreeBytes), size(p.memory.LimitBytes), p.memory.Limit)
	trainers, flag := "1 trainer (", "--trainer-memory"
	if p.trainers > 1 {
		trainers = fmt.Sprintf("%d trainers (%s each, ", p.trainers, size(p.eachBytes))
	}
	if p.estimated {
		flag = "an estimate, see --trainer-memory"
	}
	text += fmt.Sprintf(", less %s for %s%s), less %s in reserve", size(int64(p.trainers)*p.eachBytes), trainers, flag, size(p.reserveBytes))
	slab := p.slabBytes()
	switch {
	case slab <= 0:
		return text + ", leaves nothing for the cache"
	case p.ranksHere > 1:
		text += fmt.Sprintf(", for %d ranks", p.ranksHere)
	}
	if p.sharedBytes > 0 && slab == (p.sharedBytes-p.sharedBytes/autoReserveShare)/int64(p.ranksHere) {
		text += fmt.Sprintf(", and no more than /dev/shm holds (%s)", size(p.sharedBytes))
	}
	return text + " = " + size(slab) + " for the cache"
}
