// Package planning measures what an epoch's plan costs a rank in time and memory.
package planning

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// Config describes the plan to make.
type Config struct {
	Sampler   string
	Samples   int
	Ranks     int // each with one trainer
	BatchSize int // a trainer's
	Seed      int64
	Rounds    int // plans that are timed, at least 1
}

// Result is what was measured.
type Result struct {
	Draws, Batches int
	Seconds        []float64 // of each round
	// the most memory that a plan took beyond the scores that it is made from, including garbage not
	// collected yet
	PeakBytes int64
}

// Measure makes the plans of one rank, all of an epoch's draws and their consumers, one after the
// other on one core (it sets GOMAXPROCS, and restores it). Memory is the whole process's, so
// nothing else should run in it.
//
// It returns an error if the configuration is out of range or Linux does not report the memory.
func Measure(cfg Config) (*Result, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	sampler, err := draw.NewSampler(draw.SamplerConfig{
		Name: cfg.Sampler, Samples: cfg.Samples, Seed: cfg.Seed, BatchSize: cfg.BatchSize,
		World: cfg.Ranks,
	})
	if err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}
	planCfg := plan.Config{
		Sampler: sampler, Samples: cfg.Samples, BatchSize: cfg.BatchSize,
		Ranks: cfg.Ranks,
	}
	for rank := range cfg.Ranks {
		planCfg.World = append(planCfg.World, int32(rank))
	}
	scores := lossLike(cfg.Samples)
	before, err := restartPeak()
	if err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}
	made := plan.New(planCfg, 0, scores)
	after, err := statusBytes("VmHWM:")
	if err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}
	result := &Result{Draws: len(made.IDs), Batches: made.Batches(), PeakBytes: after - before}
	for round := range cfg.Rounds {
		began := time.Now()
		made = plan.New(planCfg, round+1, scores)
		result.Seconds = append(result.Seconds, time.Since(began).Seconds())
	}
	runtime.KeepAlive(made)
	return result, nil
}

// lossLike returns scores that look like losses: most of them small, a few large.
func lossLike(n int) []float32 {
	rng := rand.New(rand.NewPCG(1, 99))
	scores := make([]float32, n)
	for i := range scores {
		e := rng.ExpFloat64()
		scores[i] = float32(e * e)
	}
	return scores
}

// restartPeak resets the kernel's record of peak memory, and returns the memory in use.
//
// Source: Linux, proc_pid_clear_refs(5), value 5.
func restartPeak() (bytes int64, err error) {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return 0, err
	}
	return statusBytes("VmRSS:")
}

// statusBytes reads a line of /proc/self/status that is in kB.
func statusBytes(name string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	words := strings.Fields(string(text))
	at := slices.Index(words, name)
	if at < 0 {
		return 0, fmt.Errorf("the kernel does not report %s", name)
	}
	kib, err := strconv.ParseInt(words[at+1], 10, 64)
	return kib * 1024, err
}
