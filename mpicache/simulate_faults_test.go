package mpicache

import (
	"flag"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rankpool/scheduler/draw"
)

var (
	jobs    = flag.Uint64("jobs", 40, "simulated jobs with faults")
	oneJob  = flag.Int64("job", -1, "the seed of one simulated job, which is told in full")
	oneFlaw = flag.String("flaw", "", "a fault that is planted in -job's product")
	flawed  = flag.Uint64("flawed", 0, "simulated jobs in which each planted fault is looked for")
)

// jobsSeen is what happened in simulated jobs.
type jobsSeen struct{ jobs, batches, starts, requeues, errors int }

// jobsAtOnce simulates the jobs of seeds from 0 on, on all processors, until one is wrong. It
// returns the wrong one with the smallest seed, nil for none, and what happened in all jobs.
func jobsAtOnce(seeds uint64, flaw string) (bad *simJob, seed uint64, seen jobsSeen) {
	var next atomic.Uint64
	var mu sync.Mutex
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				s := next.Add(1) - 1
				mu.Lock()
				over := s >= seeds || bad != nil
				mu.Unlock()
				if over {
					return
				}
				j := simulate(s, flaw, false)
				mu.Lock()
				seen.jobs++
				seen.batches += j.steps
				seen.starts += j.starts
				seen.requeues += j.requeues
				if j.why != "" {
					seen.errors++
				}
				if j.violation != "" && (bad == nil || s < seed) {
					bad, seed = j, s
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return bad, seed, seen
}

// TestJobsUnderFaults simulates whole jobs: each training gets the stream that it gets without
// faults, or ends with an error that its faults allow; all draws are counted, nothing leaks.
func TestJobsUnderFaults(t *testing.T) {
	if *oneJob >= 0 {
		j := simulate(uint64(*oneJob), *oneFlaw, true)
		fmt.Println(j.clock.trace.text(1 << 30))
		if j.violation != "" {
			t.Error(j.violation)
		}
		return
	}
	if testing.Short() {
		*jobs = min(*jobs, 20)
	}
	began := time.Now()
	bad, seed, seen := jobsAtOnce(*jobs, "")
	took := time.Since(began)
	t.Logf("%d jobs in %v: %.0f a second; %d batches, %d starts of the cache, %d requeues, "+
		"%d trainings ended by a sample that had changed", seen.jobs, took.Round(time.Second),
		float64(seen.jobs)/took.Seconds(), seen.batches, seen.starts, seen.requeues, seen.errors)
	if bad == nil && (seen.starts < 5*seen.jobs/4 || seen.batches < 15*seen.jobs) {
		t.Error("too little has happened")
	}
	if bad != nil {
		commit, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
		again := simulate(seed, "", true)
		t.Fatalf("seed %d: %s\n%s\nAgain, at commit %s, in full: go test ./mpicache "+
			"-run JobsUnderFaults -job %d", seed, bad.violation, again.clock.trace.text(60),
			strings.TrimSpace(string(commit)), seed)
	}
}

// TestListedJobsUnderFaults simulates jobs whose trainers hand in what they draw, sometimes ahead,
// and sometimes not what they then train on.
func TestListedJobsUnderFaults(t *testing.T) {
	for seed := range *jobs {
		listed := func(c *simConfig) { c.sampler = draw.InList }
		if j := simulateWith(seed, "", false, listed); j.violation != "" {
			again := simulateWith(seed, "", true, listed)
			t.Fatalf("seed %d: %s\n%s", seed, j.violation, again.clock.trace.text(60))
		}
	}
}

// TestThriftyJobsUnderFaults simulates jobs whose draws depend on those of the epochs before.
func TestThriftyJobsUnderFaults(t *testing.T) {
	for seed := range *jobs {
		thrifty := func(c *simConfig) { c.sampler = draw.Thrifty }
		if j := simulateWith(seed, "", false, thrifty); j.violation != "" {
			again := simulateWith(seed, "", true, thrifty)
			t.Fatalf("seed %d: %s\n%s", seed, j.violation, again.clock.trace.text(60))
		}
	}
}

// TestRanksThatLoseEachOther cuts the network between two ranks that both reach rank 0. They miss
// each other, and the cache is restarted.
func TestRanksThatLoseEachOther(t *testing.T) {
	for seed := range uint64(10) {
		j := simulateWith(seed, "", false, func(c *simConfig) {
			c.ranks, c.perRank, c.idle, c.sampler = 3, 1, 0, "pads"
			c.samples, c.epochs = 6*simGlobalBatch, 3
			c.partition = int64(c.samples) * 32
			step := 1 + int(seed) // in the last batches they need nothing from each other
			c.faults = []simFault{{name: "two ranks lose each other", step: step, do: (*simJob).part}}
		})
		if j.violation != "" || j.starts != 2 {
			t.Errorf("seed %d: %q after %d starts of the cache", seed, j.violation, j.starts)
		}
	}
}

// TestJobsReplay checks that everything follows from the seed: 100 of 100 replays are the same.
func TestJobsReplay(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		first := simulate(seed, "", true).clock.trace
		for range 5 {
			again := simulate(seed, "", true).clock.trace
			if again.hash.Sum64() == first.hash.Sum64() {
				continue
			}
			at := 0
			for at < min(len(first.lines), len(again.lines)) &&
				first.lines[at] == again.lines[at] {
				at++
			}
			t.Fatalf("seed %d: after\n%s\none run continues with\n%s\nand another with\n%s", seed,
				strings.Join(first.lines[max(0, at-5):at], "\n"), first.lines[at], again.lines[at])
		}
	}
}

// TestJobsFindFlaws plants faults in the product, one at a time, and checks that the job of a seed
// shows each. If a seed no longer does, because jobs have changed, it looks for another one and
// logs it.
func TestJobsFindFlaws(t *testing.T) {
	for _, flaw := range simFlaws {
		t.Run(flaw.name, func(t *testing.T) {
			if *flawed == 0 {
				if simulate(flaw.seed, "", false).violation != "" {
					t.Fatalf("seed %d is wrong without it", flaw.seed)
				}
				if bad := simulate(flaw.seed, flaw.name, false); bad.violation != "" {
					return
				}
			}
			bad, seed, _ := jobsAtOnce(max(*flawed, 2000), flaw.name)
			if bad == nil {
				t.Fatalf("not found in %d jobs", max(*flawed, 2000))
			}
			t.Logf("not seed %d, but %d: %s", flaw.seed, seed, bad.violation)
		})
	}
}
