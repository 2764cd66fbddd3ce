package doctor

import (
	"fmt"
	"math"

	"rankpool/slurm"
)

const (
	// littleMemory is what a rank needs beside its samples, and a training process to start.
	littleMemory = 2 << 30
	// littleShm is what DataLoader workers need for their batches: containers give 64 MiB by default,
	// and a worker is then killed by SIGBUS.
	littleShm = 1 << 30
)

// checkMemory compares the free memory with what the user wants.
func checkMemory(env *Env) []Finding {
	least := slurm.ReadMemory(env.Machine.ReadFile, env.getenv, 0)
	free, from := least.FreeBytes, least.Limit
	if free == math.MaxInt64 {
		return good("no limit of memory was found")
	}
	ranks := int64(max(1, env.Launch.LocalTasks))
	detail, wanted := "{} may still be used ("+from+")", env.MemoryBytes*ranks
	const advice = "give --memory a smaller size, or the job more with --mem"
	switch {
	case wanted > free:
		return bad(detail+", less than the {} asked for", advice, free, wanted)
	case wanted > 0 && wanted > free-littleMemory:
		return warning(detail+", hardly more than the {} asked for: training needs some too", advice,
			free, wanted)
	case free < littleMemory:
		return warning(detail, "give the job more with --mem", free)
	}
	return good(detail, free)
}

// checkShm checks /dev/shm, which does not hold the cache's memory: a memfd is limited only by
// memory.
func checkShm(env *Env) []Finding {
	fs, err := env.Machine.FileSystem("/dev/shm")
	switch {
	case err != nil:
		return warning(fmt.Sprintf("/dev/shm cannot be used: %v", err),
			"mount a tmpfs there: PyTorch's DataLoader workers need it")
	case fs.Bytes < littleShm:
		return warning("/dev/shm has {}, which DataLoader workers fill quickly",
			"give the container more: --shm-size=8g, or --ipc=host", fs.Bytes)
	}
	return good("{} of /dev/shm's {} are free", fs.FreeBytes, fs.Bytes)
}
