package main

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

	"rankpool/scheduler"
)

var planSection = section{
	name: "plan",
	about: "scheduler.NewPlan, all of an epoch's draws and their consumers, with 1,024 ranks of batch size 32 in a process that runs on one core: the median of five, and the most memory " +
		"that the process took for it beyond what it is made from, garbage not yet collected included (VmHWM).",
	measure: (*bench).plan,
}

// planResult is what a child measured.
type planResult struct {
	Seconds   []float64
	PeakBytes float64
}

func (b *bench) plan() ([]row, error) {
	samples, title := 14_200_000, "14.2 M samples, 1,024 ranks"
	if b.quick {
		samples, title = 142_000, "142,000 samples, 1,024 ranks"
	}
	var rows []row
	for _, sampler := range []string{"pads", "torch", "uniform"} {
		var result planResult
		if err := inChild(nil, &result, "plan", sampler, strconv.Itoa(samples)); err != nil {
			return rows, err
		}
		seconds, bytes := median(result.Seconds), result.PeakBytes/float64(samples)
		rows = append(rows,
			plainRow("plan of "+title+", one core, "+sampler, fmt.Sprintf("%.2f s", seconds), "", seconds, 1.5, "1.5 s"),
			plainRow("the same, memory a sample", fmt.Sprintf("%.1f B", bytes), "", bytes, 32, "32 B"))
	}
	return rows, nil
}

// planChild measures in a process of its own, because the most memory that was taken is known of processes only.
func planChild(args []string) (any, error) {
	const ranks, batchSize, rounds = 1024, 32, 5
	samples, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(1)
	sampler, err := scheduler.NewSampler(scheduler.SamplerConfig{Name: args[0], Samples: samples, BatchSize: batchSize, World: ranks})
	if err != nil {
		return nil, err
	}
	cfg := scheduler.PlanConfig{Sampler: sampler, Samples: samples, BatchSize: batchSize, Ranks: ranks}
	for rank := range int32(ranks) {
		cfg.World = append(cfg.World, rank)
	}
	scores := lossLike(samples)
	var result planResult
	before, err := restartPeak()
	if err != nil {
		return nil, err
	}
	plan := scheduler.NewPlan(cfg, 0, scores)
	after, err := statusBytes("VmHWM:")
	if err != nil {
		return nil, err
	}
	result.PeakBytes = float64(after - before)
	runtime.KeepAlive(plan)
	for epoch := range rounds {
		began := time.Now()
		plan := scheduler.NewPlan(cfg, epoch+1, scores)
		result.Seconds = append(result.Seconds, time.Since(began).Seconds())
		runtime.KeepAlive(plan)
	}
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

// restartPeak has the kernel count the most memory anew, and returns what is in use now.
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
		return 0, fmt.Errorf("the kernel does not tell %s", name)
	}
	kib, err := strconv.ParseInt(words[at+1], 10, 64)
	return kib * 1024, err
}
